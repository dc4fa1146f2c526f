#include "lockstep/parallel/detail/unit_gathers.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::parallel::detail {

UnitGathers::UnitGathers(ShardedValues& values, Options options)
    : values_(values), options_(std::move(options)), units_(options_.buckets.size()) {}

// Returns whether a unit stays whole between its forward and its backward pass. What
// follows the forward pass of the last one is its backward pass.
bool UnitGathers::keeps(std::size_t unit) const {
  return with_backward_ &&
         (!options_.frees_after_forward || unit == 0 || unit + 1 == num_units());
}

void UnitGathers::make_schedule(bool with_backward) {
  with_backward_ = with_backward;
  schedule_.clear();
  for (std::size_t unit = 0; unit < num_units(); ++unit) {
    schedule_.push_back({unit, Direction::forward});
  }
  for (auto unit = num_units(); with_backward && unit-- > 1;) {
    if (!keeps(unit)) schedule_.push_back({unit, Direction::backward});
  }
}

void UnitGathers::begin_pass(bool with_backward) {
  if (open_) end_pass();
  open_ = true;
  pass_ += 1;
  make_schedule(with_backward);
  next_ = started_ = 0;
  left_ = num_units();
  come_to(0);
  hold(0);
}

// The visits are few, and the next one is nearly always the one that is looked for.
std::optional<std::size_t> UnitGathers::find(const Visit& visit) const {
  for (auto place = next_; place < schedule_.size(); ++place) {
    const auto& at = schedule_[place];
    if (at.unit == visit.unit && at.direction == visit.direction) return place;
  }
  return std::nullopt;
}

// Waits for the unit of one visit; those before it are passed over. The next ones are
// gathered while it computes.
void UnitGathers::come_to(std::size_t place) {
  while (next_ < place) pass_over(next_);
  const auto until = std::min(place + 1 + options_.prefetch, schedule_.size());
  for (; started_ < until; ++started_) {
    const auto unit = schedule_[started_].unit;
    if (units_[unit].is_whole) break;  // it is in use: its turn comes later
    start(unit);
  }
  wait(schedule_[place].unit);
  next_ = place + 1;
}

// The other ranks may need this rank's shard of a unit that it does not use itself.
void UnitGathers::pass_over(std::size_t place) {
  const auto [unit, direction] = schedule_[place];
  if (started_ <= place) {
    start(unit);
    started_ = place + 1;
  }
  wait(unit);
  if (direction == Direction::forward && keeps(unit)) {
    hold(unit);  // until its backward pass
  } else if (units_[unit].holders == 0) {
    free(unit);
  }
  if (direction == Direction::backward) backward_is_done(unit);
  next_ = place + 1;
}

void UnitGathers::start(std::size_t unit) {
  auto& state = units_[unit];
  LOCKSTEP_CHECK(!state.is_whole, "unit '", options_.names[unit],
                 "' is gathered while it is whole");
  for (const auto bucket : options_.buckets[unit]) {
    state.pending.push_back(values_.gather(bucket));
    bytes_ += values_.num_bytes(bucket);
  }
  peak_bytes_ = std::max(peak_bytes_, bytes_);
  state.is_whole = true;
}

void UnitGathers::wait(std::size_t unit) {
  for (auto& pending : units_[unit].pending) pending.wait();
  units_[unit].pending.clear();
}

void UnitGathers::free(std::size_t unit) {
  auto& state = units_[unit];
  if (!state.is_whole) return;
  for (const auto bucket : options_.buckets[unit]) {
    values_.free(bucket);
    bytes_ -= values_.num_bytes(bucket);
  }
  state.is_whole = false;
}

void UnitGathers::hold(std::size_t unit) {
  units_[unit].holders += 1;
}

void UnitGathers::refuse_second_use(std::size_t unit) const {
  throw Error(Fault::config, "parallel: unit '", options_.names[unit],
              "' is used a second time in one pass, or in another order than units are "
              "listed; list units as they follow each other, each used once, and leave "
              "out a module that is used several times");
}

void UnitGathers::acquire_forward(std::size_t unit) {
  LOCKSTEP_CHECK(open_, "unit '", options_.names[unit],
                 "' is used outside of Engine::forward()");
  const auto place = find({unit, Direction::forward});
  if (place) {
    come_to(*place);
  } else if (units_[unit].holders == 0) {
    refuse_second_use(unit);
  }
  hold(unit);
}

void UnitGathers::release_forward(std::size_t unit) {
  if (keeps(unit)) return;  // it is still held, for the backward pass
  auto& state = units_[unit];
  state.holders = std::max(0, state.holders - 1);
  if (state.holders == 0) free(unit);
}

void UnitGathers::acquire_backward(std::size_t unit) {
  const auto place = find({unit, Direction::backward});
  if (place) {
    // The forward visits that this rank has not made come first.
    come_to(*place);
    hold(unit);
  } else if (units_[unit].holders == 0) {
    refuse_second_use(unit);
  }
}

void UnitGathers::release_backward(std::size_t unit) {
  auto& state = units_[unit];
  state.holders = std::max(0, state.holders - 1);
  backward_is_done(unit);
  if (state.holders == 0) free(unit);
}

// Units that this rank has skipped are over when one below them is.
void UnitGathers::backward_is_done(std::size_t unit) {
  while (left_ > unit && left_ > 1) {
    --left_;
    if (options_.on_backward_done) options_.on_backward_done(left_);
  }
}

void UnitGathers::end_pass() {
  if (!open_) return;
  while (next_ < schedule_.size()) {
    const auto unit = schedule_[next_].unit;
    pass_over(next_);
    if (units_[unit].holders == 0) free(unit);
  }
  if (with_backward_) backward_is_done(1);
  open_ = false;
  for (std::size_t unit = 0; unit < num_units(); ++unit) {
    units_[unit].holders = 0;
    free(unit);
  }
}

void UnitGathers::gather_all() {
  LOCKSTEP_CHECK(!open_, "units are gathered in the middle of a pass");
  for (std::size_t unit = 0; unit < num_units(); ++unit) start(unit);
  for (std::size_t unit = 0; unit < num_units(); ++unit) wait(unit);
}

void UnitGathers::free_all() {
  for (std::size_t unit = 0; unit < num_units(); ++unit) free(unit);
}

}  // namespace lockstep::parallel::detail
