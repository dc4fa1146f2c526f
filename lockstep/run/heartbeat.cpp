#include "lockstep/run/heartbeat.h"

#include <array>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep::run {
namespace {

// The file has one header, then a slot for each rank, 64 bytes each (a cache line, so
// that ranks do not slow each other). Numbers are in the machine's byte order.
constexpr std::array<char, 8> kMagic = {'L', 'S', 'H', 'E', 'A', 'R', 'T', '\n'};
constexpr std::uint32_t kVersion = 1;
constexpr int kMaxRanks = 1 << 16;

struct alignas(64) Header {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t ranks = 0;
};

struct alignas(64) BeatSlot {
  std::uint32_t sequence;  // odd while the rest is being written; 0: never written
  std::uint32_t phase;
  std::int64_t step;
  std::uint64_t time;  // bits of the double
  std::int32_t pid;
};

static_assert(sizeof(Header) == 64 && sizeof(BeatSlot) == 64, "this is a file format");

off_t slot_offset(int rank) {
  return static_cast<off_t>(sizeof(Header) +
                            static_cast<std::size_t>(rank) * sizeof(BeatSlot));
}

[[noreturn]] void fail(const files::Path& path, std::string_view what, int error) {
  throw Error(Fault::io, "heartbeat: cannot ", what, " '", path.string(),
              "': ", std::strerror(error));
}

// Rank and reader are different processes: plain stores could be reordered or torn.
template <typename T>
void store(T& place, T value) noexcept {
  __atomic_store_n(&place, value, __ATOMIC_RELAXED);
}

}  // namespace

std::string_view name_of(Phase phase) noexcept {
  constexpr std::array<std::string_view, 9> kNames = {
      "starting", "training", "evaluating", "saving",    "stopping",
      "finished", "loading",  "exchanging", "warming up"};
  const auto index = static_cast<std::size_t>(phase);
  return index < kNames.size() ? kNames[index] : "unknown";
}

files::Path launcher_heartbeat() {
  const char* path = std::getenv("LOCKSTEP_HEARTBEAT");
  return path == nullptr ? "" : path;
}

HeartbeatWriter::HeartbeatWriter(const files::Path& path, const HeartbeatSlot& slot,
                                 const Clock& clock)
    : rank_(slot.rank), pid_(::getpid()), clock_(clock) {
  const auto [rank, ranks] = slot;
  LOCKSTEP_CHECK(rank >= 0 && rank < ranks && ranks <= kMaxRanks, rank, " of ", ranks);
  const files::Descriptor file(
      ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file) fail(path, "open", errno);
  mapping_bytes_ = static_cast<std::size_t>(slot_offset(ranks));
  // A hole would turn a full disk into SIGBUS at the first beat.
  if (const int error =
          ::posix_fallocate(file.get(), 0, static_cast<off_t>(mapping_bytes_))) {
    fail(path, "allocate", error);
  }
  Header header;
  header.ranks = static_cast<std::uint32_t>(ranks);
  // Every rank writes the same bytes, so it does not matter which is first.
  if (::pwrite(file.get(), &header, sizeof header, 0) != sizeof header) {
    fail(path, "write", errno);
  }
  mapping_ = ::mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED,
                    file.get(), 0);
  if (mapping_ == MAP_FAILED) fail(path, "map", errno);
}

HeartbeatWriter::~HeartbeatWriter() {
  ::munmap(mapping_, mapping_bytes_);
}

void HeartbeatWriter::beat(std::int64_t step, Phase phase) noexcept {
  auto* slot =
      reinterpret_cast<BeatSlot*>(static_cast<char*>(mapping_) + slot_offset(rank_));
  // An odd number may be left from a process that died in the middle of its beat.
  const std::uint32_t before = slot->sequence & ~1U;
  store(slot->sequence, before + 1);
  __atomic_thread_fence(__ATOMIC_RELEASE);
  store(slot->phase, static_cast<std::uint32_t>(phase));
  store(slot->step, step);
  store(slot->time, std::bit_cast<std::uint64_t>(unix_seconds(clock_.wall())));
  store(slot->pid, static_cast<std::int32_t>(pid_));
  __atomic_store_n(&slot->sequence, before + 2, __ATOMIC_RELEASE);
}

HeartbeatReader::HeartbeatReader(const files::Path& path)
    : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (!file_) fail(path, "open", errno);
  Header header;
  const auto got = ::pread(file_.get(), &header, sizeof header, 0);
  if (got != sizeof header || header.magic != kMagic) {
    throw Error(Fault::io, "heartbeat: '", path.string(), "' is not a heartbeat file");
  }
  if (header.version != kVersion || header.ranks > kMaxRanks) {
    throw Error(Fault::io, "heartbeat: '", path.string(), "' has version ",
                header.version, " with ", header.ranks,
                " ranks; this program reads version ", kVersion);
  }
  ranks_ = static_cast<int>(header.ranks);
}

// It reads by pread, not by a mapping: a file that is cut short meanwhile gives a short
// read, not a signal. The beat is whole if the sequence is even and the same before and
// after.
std::optional<Beat> HeartbeatReader::read(int rank) const {
  if (rank < 0 || rank >= ranks_) return std::nullopt;
  constexpr int kTries = 1000;
  for (int i = 0; i < kTries; ++i) {
    BeatSlot slot{};
    std::uint32_t before = 0, after = 0;
    const auto at = slot_offset(rank);
    if (::pread(file_.get(), &before, sizeof before, at) != sizeof before) break;
    if (::pread(file_.get(), &slot, sizeof slot, at) != sizeof slot) break;
    if (::pread(file_.get(), &after, sizeof after, at) != sizeof after) break;
    if (before == 0) return std::nullopt;
    if (before != after || before % 2 != 0) continue;
    return Beat{.step = slot.step,
                .phase = static_cast<Phase>(slot.phase),
                .time = std::bit_cast<double>(slot.time),
                .pid = slot.pid};
  }
  return std::nullopt;
}

}  // namespace lockstep::run
