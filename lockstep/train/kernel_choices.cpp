#include "lockstep/train/kernel_choices.h"

#include <exception>
#include <set>
#include <system_error>
#include <utility>

#include "lockstep/base/files.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/run/state_directory.h"

namespace lockstep::train {
namespace {

constexpr std::int64_t kLongestFile = 1 << 22;

std::string read_choices(const std::filesystem::path& file) {
  std::error_code none;
  if (file.empty() || !std::filesystem::exists(file, none)) return "";
  try {
    return files::read(file, kLongestFile);
  } catch (const std::exception& error) {
    log::warning("train", str("algorithms are measured anew: ", error.what()));
    return "";
  }
}

// Returns the lines of both, each once; those of the first stand first and win.
std::string joined(const std::string& first, const std::string& second) {
  std::set<std::string> seen;
  std::string all;
  for (const auto* text : {&first, &second}) {
    for (const auto& line : text::split(*text, '\n')) {
      if (line.empty() || !seen.insert(std::string(line)).second) continue;
      all += str(line, '\n');
    }
  }
  return all;
}

}  // namespace

KernelChoices::KernelChoices(models::Model& model, std::filesystem::path file)
    : own_(model.own_backward()), file_(std::move(file)) {
  if (own_ == nullptr) return;
  kept_ = read_choices(file_);
  if (!kept_.empty()) own_->use_choices(kept_);
}

void KernelChoices::keep() {
  if (own_ == nullptr || file_.empty()) return;
  // Another run may have written meanwhile.
  const auto all = joined(joined(read_choices(file_), kept_), own_->choices());
  if (all == kept_) return;
  kept_ = all;
  try {
    std::filesystem::create_directories(file_.parent_path());
    files::write_atomically(file_, all);
  } catch (const std::exception& error) {
    log::warning("train", str("chosen algorithms are not kept: ", error.what()));
  }
}

std::filesystem::path kernel_choices_file() {
  const auto state = run::state_directory();
  return state.empty() ? state : state / "kernels.txt";
}

}  // namespace lockstep::train
