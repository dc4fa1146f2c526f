#include "lockstep/memory/recovery.h"

#include <algorithm>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"

namespace lockstep::memory {

Recovery::Recovery(const Parts& parts)
    : parts_(parts), start_(parts.model, parts.device), micro_(parts.micro_batch) {}

bool Recovery::is_on() const noexcept {
  return parts_.config.on_out_of_memory == config::OnOutOfMemory::retry;
}

void Recovery::begin(task::Tally& tally) {
  if (is_on()) start_.take();
  tally.remember();
}

bool Recovery::succeeded() {
  good_steps_ += 1;
  const bool may_grow = parts_.config.grow_after > 0 &&
                        good_steps_ >= parts_.config.grow_after &&
                        micro_ < parts_.micro_batch;
  if (!may_grow) return false;
  good_steps_ = 0;
  micro_ = std::min(2 * micro_, parts_.micro_batch);
  return true;
}

void Recovery::put_back(task::Tally& tally) {
  start_.restore();
  tally.rewind();
  if (auto* own = parts_.model.own_backward()) own->release_memory();
  empty_cache(parts_.device);
}

// Passes that a model writes out compute no block again.
bool Recovery::can_recompute() const {
  return parts_.model.num_blocks() > 0 && parts_.model.own_backward() == nullptr;
}

std::string Recovery::after(const Shortage& shortage, task::Tally& tally) {
  put_back(tally);
  good_steps_ = 0;
  if (micro_ > 1) {
    const auto before = micro_;
    micro_ = (micro_ + 1) / 2;
    return fmt::format("micro-batches of {} instead of {}", micro_, before);
  }
  if (!can_recompute() || parts_.model.recompute_every() == 1) give_up(shortage);
  parts_.model.recompute_every(1);
  return "micro-batches of 1, and activations are computed again in the backward pass";
}

void Recovery::give_up(const Shortage& shortage) const {
  std::vector<std::vector<std::string>> rows{
      {"rank", "allocated", "reserved", "of", "ran out"}};
  for (std::size_t r = 0; r < shortage.memory.size(); ++r) {
    const auto& memory = shortage.memory[r];
    const bool out = std::find(shortage.ranks.begin(), shortage.ranks.end(),
                               static_cast<int>(r)) != shortage.ranks.end();
    rows.push_back({str(r), units::format_bytes(memory.allocated_bytes),
                    units::format_bytes(memory.reserved_bytes),
                    units::format_bytes(memory.total_bytes), out ? "yes" : ""});
  }
  throw Error(Fault::hardware, "train: out of memory in step ", shortage.step + 1,
              " with micro-batches of 1",
              can_recompute() ? " and activations computed again" : "",
              "; choose a smaller model, ",
              parts_.model.own_backward() != nullptr && parts_.model.num_blocks() > 0
                  ? "model.own_backward=false, which can compute activations again, "
                  : "precision.mode=bf16, ",
              "or more ranks with parallel.shard_update=on\n",
              text::table(rows, {0, 1, 2, 3}));
}

}  // namespace lockstep::memory
