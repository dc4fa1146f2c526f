#include "lockstep/data/detail/sample.h"

#include <algorithm>

#include "lockstep/data/detail/numbers.h"

namespace lockstep::data::detail {
Sample::Sample(const Dataset& dataset)
    : dataset_(dataset), specs_(dataset.spec().tensors()) {
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    memory_.emplace_back(static_cast<std::size_t>(specs_[i].num_bytes()));
    if (i >= kFirstField && specs_[i].name == "target_mask") mask_ = i;
  }
  for (auto& memory : memory_) spans_.emplace_back(memory);
  lengths_.resize(specs_.size());
}

void Sample::read(std::int64_t index) {
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    lengths_[i] = specs_[i].varies ? specs_[i].shape[0] : 0;
  }
  const auto& target = spans_[kTarget];
  const bool whole = specs_[kTarget].dtype == torch::kInt64;
  const std::span<std::int64_t> numbers(
      reinterpret_cast<std::int64_t*>(target.data()),
      whole ? target.size() / sizeof(std::int64_t) : 0);
  dataset_.read_sample(
      {.index = index, .draw = index},
      {spans_[0], numbers, std::span(spans_).subspan(kFirstField), target, lengths_});
}

std::size_t Sample::num_targets() const {
  const auto& spec = specs_[kTarget];
  const auto all = static_cast<std::size_t>(spec.num_elements());
  if (!spec.varies || all == 0) return all;
  const auto longest = spec.shape[0];
  const auto length = std::clamp<std::int64_t>(lengths_[kTarget], 0, longest);
  return all / static_cast<std::size_t>(longest) * static_cast<std::size_t>(length);
}

std::int64_t Sample::first_class() const {
  return whole_at(spans_[kTarget], specs_[kTarget].dtype, 0);
}

std::vector<std::int64_t> Sample::classes() const {
  const auto count = num_targets();
  // An entry of the mask is that of all targets below it.
  const auto entries = mask_ && !specs_[*mask_].varies
                           ? static_cast<std::size_t>(specs_[*mask_].num_elements())
                           : 0;
  const bool is_masked = entries > 0 && count % entries == 0;
  std::vector<std::int64_t> all;
  for (std::size_t i = 0; i < count; ++i) {
    if (is_masked &&
        !is_set(spans_[*mask_], specs_[*mask_].dtype, i / (count / entries))) {
      continue;
    }
    all.push_back(whole_at(spans_[kTarget], specs_[kTarget].dtype, i));
  }
  return all;
}

}  // namespace lockstep::data::detail
