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

std::set<std::int64_t, std::greater<>> micro_batches_of(const BatchCut& batch,
                                                        std::int64_t ranks) {
  std::set<std::int64_t, std::greater<>> sizes;
  for (const auto share : {batch.largest, batch.global / ranks}) {
    const auto counted = batch.match ? batch.largest : share;
    const auto passes = (counted + batch.micro - 1) / batch.micro;
    if (passes == 0) continue;
    sizes.insert((share + passes - 1) / passes);  // Step makes them of one size
    sizes.insert(share / passes);
  }
  sizes.erase(0);
  return sizes;
}

KernelChoices::KernelChoices(models::Model& model, Files files)
    : own_(model.own_backward()),
      run_{.file = std::move(files.run)},
      machine_{.file = std::move(files.machine)} {
  if (own_ == nullptr) return;
  run_.text = read_choices(run_.file);
  machine_.text = read_choices(machine_.file);
  const auto known = joined(run_.text, machine_.text);
  if (!known.empty()) own_->use_choices(known);
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

void KernelChoices::measure(const BatchCut& batch, std::int64_t ranks) {
  try {
    for (const auto size : micro_batches_of(batch, ranks)) {
      own_->prepare(size, batch.sample);
    }
  } catch (const std::exception& error) {
    // The pass meets the same, where all ranks agree on smaller pieces.
    if (!models::is_out_of_memory(error)) throw;
    own_->release_memory();
  }
}

void KernelChoices::keep() {
  if (own_ == nullptr) return;
  const auto chosen = own_->choices();
  write(run_, joined(run_.text, chosen));
  // Another run may have written meanwhile. A run directory that is gone is not made.
  std::error_code refused;  // said when the file can not be written
  const auto folder = machine_.file.parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, refused);
  write(machine_, joined(joined(read_choices(machine_.file), machine_.text), chosen));
}

void KernelChoices::write(Kept& kept, const std::string& text) {
  if (kept.file.empty() || text == kept.text) return;
  kept.text = text;
  try {
    files::write_atomically(kept.file, text);
  } catch (const std::exception& error) {
    log::warning("train", str("chosen algorithms are not kept: ", error.what()));
  }
}

std::filesystem::path kernel_choices_file() {
  const auto state = run::state_directory();
  return state.empty() ? state : state / "kernels.txt";
}

}  // namespace lockstep::train
