#include "lockstep/train/kernel_choices.h"

#include <algorithm>
#include <exception>
#include <system_error>
#include <utility>

#include "lockstep/base/files.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/broadcast_text.h"
#include "lockstep/models/out_of_memory.h"
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
    log::warning("train", str("algorithms are measured again: ", error.what()));
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

void KernelChoices::agree(const BatchCut& batch, comm::World& world) {
  if (own_ == nullptr || !seen_.emplace(batch.global, batch.micro).second) return;
  if (world.rank() == 0) {
    measure(batch, world.size());
    keep();
  }
  if (world.size() == 1) return;
  const auto first = comm::broadcast_text(own_->choices(), world.cpu());
  if (world.rank() != 0) own_->use_choices(first);
}

// All shapes of micro-batches that a rank has of it.
void KernelChoices::measure(const BatchCut& batch, std::int64_t ranks) {
  try {
    for (const auto share : {batch.largest, batch.global / ranks}) {
      for (const auto size : {std::min(share, batch.micro), share % batch.micro}) {
        if (size > 0) own_->prepare(size, batch.sample);
      }
    }
  } catch (const std::exception& error) {
    // The pass meets the same, where all ranks agree on smaller pieces.
    if (!models::is_out_of_memory(error)) throw;
    own_->release_memory();
  }
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
