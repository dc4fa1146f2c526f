#include "lockstep/parallel/detail/unit_gathers.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::parallel::detail {

UnitGathers::UnitGathers(ShardedValues& values, Options options)
    : values_(values),
      options_(std::move(options)),
      units_(options_.buckets.size()),
      uses_(options_.unit_of_use.size()),
      first_use_(options_.buckets.size()) {
  for (auto use = uses_.size(); use-- > 0;) first_use_[options_.unit_of_use[use]] = use;
}

// What follows the forward pass of the last use is its backward pass.
void UnitGathers::make_schedule(bool with_backward) {
  with_backward_ = with_backward;
  schedule_.clear();
  const bool keeps_all = with_backward && !options_.frees_after_forward;
  for (std::size_t use = 0; use < uses_.size(); ++use) {
    const bool is_first = first_use_[options_.unit_of_use[use]] == use;
    const bool is_last = with_backward && use + 1 == uses_.size();
    uses_[use] = {.forward = schedule_.size()};
    schedule_.push_back({.use = use,
                         .gathers = is_first || !keeps_all,
                         .frees = use > 0 && !keeps_all && !is_last});
  }
  if (with_backward) add_backward(0);
}

// The backward pass comes to a use before the ones inside of it, and to those beside
// each other from the last to the first.
void UnitGathers::add_backward(std::size_t outer) {
  for (auto use = uses_.size(); use-- > outer + 1;) {
    if (options_.outer_use[use] != outer) continue;
    const bool is_first = first_use_[options_.unit_of_use[use]] == use;
    const bool is_last = use + 1 == uses_.size();
    uses_[use].backward = schedule_.size();
    schedule_.push_back({.use = use,
                         .is_backward = true,
                         .gathers = options_.frees_after_forward && !is_last,
                         .frees = options_.frees_after_forward || is_first});
    add_backward(use);
  }
}

void UnitGathers::begin_pass(bool with_backward) {
  if (open_) end_pass();
  open_ = true;
  pass_ += 1;
  make_schedule(with_backward);
  next_ = started_ = 0;
  undone_ = uses_.size();
  come_to(0);
}

// Waits for the unit of one visit; those before it are passed over. The next ones are
// gathered while it computes, but one that is still whole has to be freed first.
void UnitGathers::come_to(std::size_t place) {
  while (next_ < place) pass_over(next_);
  const auto until = std::min(place + 1 + options_.prefetch, schedule_.size());
  for (; started_ < until; ++started_) {
    const auto& visit = schedule_[started_];
    if (!visit.gathers) continue;
    if (units_[unit_of(visit)].is_whole && started_ != place) break;
    start(unit_of(visit));
  }
  wait(unit_of(schedule_[place]));
  units_[unit_of(schedule_[place])].holders += 1;
  next_ = place + 1;
}

// The other ranks may need this rank's shard of a unit that it does not use itself.
void UnitGathers::pass_over(std::size_t place) {
  const auto& visit = schedule_[place];
  const auto unit = unit_of(visit);
  if (started_ <= place) {
    if (visit.gathers) start(unit);
    started_ = place + 1;
  }
  wait(unit);
  next_ = place + 1;
  end_visit(visit);
  if (visit.is_backward) tell_done();
}

void UnitGathers::end_visit(const Visit& visit) {
  if (visit.frees && units_[unit_of(visit)].holders == 0) free(unit_of(visit));
}

// A unit that this rank has not released (a use whose input needs no gradient, or that
// failed) is gathered all the same: other ranks need it.
void UnitGathers::start(std::size_t unit) {
  auto& state = units_[unit];
  free(unit);
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

void UnitGathers::refuse_second_use(std::size_t use) const {
  throw Error(Fault::config, "parallel: unit '",
              options_.names[options_.unit_of_use[use]],
              "' is used a second time in one pass, or in another order than units are "
              "listed; list units as they follow each other, one that is used twice "
              "twice, and recompute inside of a unit, not around it");
}

void UnitGathers::acquire_forward(std::size_t use) {
  LOCKSTEP_CHECK(open_, "unit '", options_.names[options_.unit_of_use[use]],
                 "' is used outside of Engine::forward()");
  const auto place = uses_[use].forward;
  if (place >= next_) return come_to(place);
  auto& unit = units_[options_.unit_of_use[use]];
  if (unit.holders == 0) refuse_second_use(use);
  unit.holders += 1;  // it is computed again, in its backward pass
}

void UnitGathers::release_forward(std::size_t use) {
  auto& unit = units_[options_.unit_of_use[use]];
  unit.holders = std::max(0, unit.holders - 1);
  if (!uses_[use].in_backward) end_visit(schedule_[uses_[use].forward]);
}

void UnitGathers::acquire_backward(std::size_t use) {
  const auto place = uses_[use].backward;
  if (place < next_) refuse_second_use(use);
  come_to(place);  // the forward visits that this rank has not made come first
  uses_[use].in_backward = true;
}

void UnitGathers::release_backward(std::size_t use) {
  auto& unit = units_[options_.unit_of_use[use]];
  unit.holders = std::max(0, unit.holders - 1);
  uses_[use].in_backward = false;
  end_visit(schedule_[uses_[use].backward]);
  tell_done();
}

// A unit's gradients are complete when the backward pass of its first use is over;
// uses that this rank skips are over when the pass has come past them.
void UnitGathers::tell_done() {
  while (undone_ > 1) {
    const auto use = undone_ - 1;
    if (uses_[use].backward >= next_ || uses_[use].in_backward) return;
    undone_ = use;
    const auto unit = options_.unit_of_use[use];
    if (first_use_[unit] == use && options_.on_backward_done) {
      options_.on_backward_done(unit);
    }
  }
}

void UnitGathers::end_pass() {
  if (!open_) return;
  // Those whose input needs no gradient have not been released.
  for (auto& use : uses_) use.in_backward = false;
  for (auto& unit : units_) unit.holders = 0;
  if (with_backward_) tell_done();
  while (next_ < schedule_.size()) pass_over(next_);
  open_ = false;
  for (std::size_t unit = 0; unit < num_units(); ++unit) free(unit);
}

}  // namespace lockstep::parallel::detail
