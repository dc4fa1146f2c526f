// Xid errors: what NVIDIA's driver writes to the kernel's log when a GPU fails.
#include <algorithm>
#include <array>
#include <cctype>
#include <map>

#include <fcntl.h>
#include <unistd.h>

#include "lockstep/base/files.h"
#include "lockstep/base/text.h"
#include "lockstep/hardware/detail/host.h"

namespace lockstep::hardware::detail {
namespace {

// Those that a program causes on a GPU that is well, as NVIDIA's device plugin for
// Kubernetes has them: exceptions and page faults of its kernels, and what follows.
constexpr std::array kOfPrograms{13, 31, 43, 45, 68, 109};

constexpr std::size_t kMostErrors = 8;  // of a GPU; more say nothing new

// Returns the kernel's log since it was last cleared (dmesg --clear); "" where it may
// not be read, as without the right to (kernel.dmesg_restrict). A read of the device is
// one record; a fixture is a file.
std::string kernel_log(const Path& root) {
  const files::Descriptor file(
      ::open((root / "dev/kmsg").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file) return "";
  ::lseek(file.get(), 0, SEEK_DATA);
  std::string log;
  std::array<char, 8192> record{};
  constexpr std::size_t kMostBytes = 16 << 20;
  while (log.size() < kMostBytes) {
    const auto size = ::read(file.get(), record.data(), record.size());
    if (size < 0 && errno == EPIPE)
      continue;  // overwritten since: the next one is there
    if (size <= 0) break;
    log.append(record.data(), static_cast<std::size_t>(size));
  }
  return log;
}

// "0000:3b:00" of "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the
// bus."
struct XidLine {
  std::string device;
  XidError error;
};

std::optional<XidLine> xid_line(const std::string& line) {
  constexpr std::string_view kBegin = "NVRM: Xid (PCI:";
  const auto begin = line.find(kBegin);
  if (begin == std::string::npos) return std::nullopt;
  const auto place = begin + kBegin.size();
  const auto close = line.find("): ", place);
  if (close == std::string::npos) return std::nullopt;
  const auto rest = line.substr(close + 3);
  const auto number = text::to_integer(rest.substr(0, rest.find(',')));
  if (!number || *number < 0 || *number > 1'000'000) return std::nullopt;
  return XidLine{text::lower(line.substr(place, close - place)),
                 {static_cast<int>(*number), rest}};
}

}  // namespace

void add_xid_errors(const Path& root, Machine& machine) {
  if (machine.gpus.empty()) return;
  std::map<std::string, std::vector<XidError>> found;
  for (const auto& line : text::split(kernel_log(root), '\n')) {
    auto parsed = xid_line(line);
    if (!parsed) continue;
    const int xid = parsed->error.xid;
    if (std::find(kOfPrograms.begin(), kOfPrograms.end(), xid) != kOfPrograms.end()) {
      continue;
    }
    auto& errors = found[parsed->device];
    if (errors.size() < kMostErrors) errors.push_back(std::move(parsed->error));
  }
  for (auto& gpu : machine.gpus) {
    // The kernel names the device without its function: "0000:3b:00" of
    // "0000:3b:00.0".
    const auto device = text::lower(gpu.pci_id.substr(0, gpu.pci_id.rfind('.')));
    const auto errors = found.find(device);
    if (errors != found.end()) gpu.xid_errors = errors->second;
  }
}

}  // namespace lockstep::hardware::detail
