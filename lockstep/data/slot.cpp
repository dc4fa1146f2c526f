#include "lockstep/data/detail/slot.h"

#include <algorithm>
#include <cstring>

namespace lockstep::data::detail {
namespace {

// Views are kept for full and last batches, at the shares before and after a change of
// them.
constexpr std::size_t kMostViews = 8;

std::span<std::byte> bytes_of(const torch::Tensor& tensor, std::int64_t row,
                              std::int64_t num_bytes) {
  return {static_cast<std::byte*>(tensor.data_ptr()) + row * num_bytes,
          static_cast<std::size_t>(num_bytes)};
}

// Lengths are multiples of this: few shapes, and ones that matrix units like.
constexpr std::int64_t kRound = 8;

// Returns the bytes of one of the rows that vary: a token, a frame.
std::int64_t bytes_of_row(const FieldSpec& spec) {
  return spec.num_bytes() / std::max<std::int64_t>(spec.shape[0], 1);
}

}  // namespace

torch::Tensor BatchSlot::make(const std::vector<std::int64_t>& shape,
                              torch::Dtype dtype) const {
  std::vector<std::int64_t> sizes{capacity_ + kind_.spare};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  return torch::empty(sizes, torch::dtype(dtype).pinned_memory(kind_.pinned));
}

void BatchSlot::reserve(std::int64_t samples) {
  if (samples <= capacity_) return;
  capacity_ = samples;
  views_.clear();
  memory_.clear();
  masks_.clear();
  for (const auto& spec : specs_) {
    memory_.push_back(make(spec.shape, spec.dtype));
    masks_.push_back(spec.varies ? make({spec.shape[0]}, torch::kBool)
                                 : torch::Tensor());
  }
  if (kind_.soft_targets) soft_ = make({num_classes_}, torch::kFloat32);
  spans_.resize(specs_.size());
  lengths_.resize(static_cast<std::size_t>(capacity_ + kind_.spare) * specs_.size());
}

Batch BatchSlot::make_view(std::int64_t size) const {
  const auto& targets = kind_.soft_targets ? soft_ : memory_[kTarget];
  Batch batch{.size = size,
              .inputs = memory_[kInput].narrow(0, 0, size),
              .targets = targets.narrow(0, 0, size)};
  for (auto i = kFirstField; i < specs_.size(); ++i) {
    batch.fields.push_back({specs_[i].name, memory_[i].narrow(0, 0, size)});
  }
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    if (!specs_[i].varies) continue;
    batch.fields.push_back({specs_[i].name + "_mask", masks_[i].narrow(0, 0, size)});
  }
  return batch;
}

Batch& BatchSlot::view(std::int64_t size) {
  reserve(size);
  const auto found = std::find_if(views_.begin(), views_.end(),
                                  [&](const Batch& v) { return v.size == size; });
  current_ = static_cast<std::size_t>(found - views_.begin());
  if (found != views_.end()) return *found;
  if (views_.size() == kMostViews) views_.clear();
  current_ = views_.size();
  views_.push_back(make_view(size));
  return views_.back();
}

std::int64_t& BatchSlot::length(std::int64_t row, std::size_t tensor) {
  return lengths_[static_cast<std::size_t>(row) * specs_.size() + tensor];
}

SampleBuffer BatchSlot::room(std::int64_t row) {
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    spans_[i] = bytes_of(memory_[i], row, specs_[i].num_bytes());
    length(row, i) = specs_[i].varies ? specs_[i].shape[0] : 0;
  }
  const bool whole = specs_[kTarget].dtype == torch::kInt64;
  const auto& target = spans_[kTarget];
  const std::span<std::int64_t> numbers(
      reinterpret_cast<std::int64_t*>(target.data()),
      whole ? target.size() / sizeof(std::int64_t) : 0);
  return {spans_[kInput], numbers, std::span(spans_).subspan(kFirstField), target,
          std::span(lengths_).subspan(static_cast<std::size_t>(row) * specs_.size(),
                                      specs_.size())};
}

std::span<float> BatchSlot::soft_target(std::int64_t row) {
  return {soft_.data_ptr<float>() + row * num_classes_,
          static_cast<std::size_t>(num_classes_)};
}

std::int64_t BatchSlot::longest(std::int64_t size, std::size_t tensor) {
  std::int64_t most = 1;
  for (std::int64_t row = 0; row < size; ++row) {
    most = std::max(most, length(row, tensor));
  }
  return std::min((most + kRound - 1) / kRound * kRound, specs_[tensor].shape[0]);
}

torch::Tensor BatchSlot::packed(std::int64_t size, std::size_t tensor,
                                std::int64_t length_of_all) {
  const auto& spec = specs_[tensor];
  auto shape = memory_[tensor].sizes().vec();
  shape[0] = size;
  shape[1] = length_of_all;
  const auto unit = bytes_of_row(spec);
  auto* memory = static_cast<std::byte*>(memory_[tensor].data_ptr());
  auto view =
      memory_[tensor]
          .flatten()
          .narrow(0, 0, size * length_of_all * (spec.num_elements() / spec.shape[0]))
          .view(shape);
  for (std::int64_t row = 0; row < size; ++row) {
    const auto own = length(row, tensor);
    // A row never moves beyond its old place: those behind it are still there.
    std::memmove(memory + row * length_of_all * unit, memory + row * spec.num_bytes(),
                 static_cast<std::size_t>(own * unit));
    if (own == length_of_all) continue;
    view.select(0, row).narrow(0, own, length_of_all - own).fill_(spec.padding);
  }
  return view;
}

torch::Tensor BatchSlot::mask(std::int64_t size, std::size_t tensor,
                              std::int64_t length_of_all) {
  auto view = masks_[tensor]
                  .flatten()
                  .narrow(0, 0, size * length_of_all)
                  .view({size, length_of_all});
  auto* to = view.data_ptr<bool>();
  for (std::int64_t row = 0; row < size; ++row, to += length_of_all) {
    std::fill_n(to, length_of_all, false);
    std::fill_n(to, length(row, tensor), true);
  }
  return view;
}

void BatchSlot::pad() {
  auto& batch = views_[current_];
  auto next_mask = specs_.size() - kFirstField;  // they stand behind the fields
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    if (!specs_[i].varies) continue;
    const auto all = longest(batch.size, i);
    auto& place = i == kInput    ? batch.inputs
                  : i == kTarget ? batch.targets
                                 : batch.fields[i - kFirstField].tensor;
    place = packed(batch.size, i, all);
    batch.fields[next_mask++].tensor = mask(batch.size, i, all);
  }
}

}  // namespace lockstep::data::detail
