#include "lockstep/data/detail/slot.h"

#include <algorithm>

namespace lockstep::data::detail {
namespace {

// Full and last batches, at the shares before and after a change of them.
constexpr std::size_t kMostViews = 8;

std::span<std::byte> bytes_of(const torch::Tensor& tensor, std::int64_t row,
                              std::int64_t num_bytes) {
  return {static_cast<std::byte*>(tensor.data_ptr()) + row * num_bytes,
          static_cast<std::size_t>(num_bytes)};
}

}  // namespace

torch::Tensor Slot::make(const std::vector<std::int64_t>& shape,
                         torch::Dtype dtype) const {
  std::vector<std::int64_t> sizes{capacity_ + kind_.spare};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  return torch::empty(sizes, torch::dtype(dtype).pinned_memory(kind_.pinned));
}

void Slot::reserve(std::int64_t samples) {
  if (samples <= capacity_) return;
  capacity_ = samples;
  views_.clear();
  fields_.clear();
  inputs_ = make(spec_.shape, spec_.dtype);
  targets_ = make(spec_.target_shape, torch::kInt64);
  if (kind_.soft_targets) soft_ = make({spec_.num_classes}, torch::kFloat32);
  for (const auto& field : spec_.fields) {
    fields_.push_back(make(field.shape, field.dtype));
  }
  spans_.resize(fields_.size());
}

Batch Slot::make_view(std::int64_t size) const {
  const auto& targets = kind_.soft_targets ? soft_ : targets_;
  Batch batch{.size = size,
              .inputs = inputs_.narrow(0, 0, size),
              .targets = targets.narrow(0, 0, size)};
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    batch.fields.push_back({spec_.fields[i].name, fields_[i].narrow(0, 0, size)});
  }
  return batch;
}

Batch& Slot::view(std::int64_t size) {
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

Room Slot::room(std::int64_t row) {
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    spans_[i] = bytes_of(fields_[i], row, spec_.fields[i].num_bytes());
  }
  const auto num_targets = spec_.num_targets();
  return {bytes_of(inputs_, row, spec_.num_bytes()),
          {targets_.data_ptr<std::int64_t>() + row * num_targets,
           static_cast<std::size_t>(num_targets)},
          spans_};
}

std::span<float> Slot::soft_target(std::int64_t row) {
  return {soft_.data_ptr<float>() + row * spec_.num_classes,
          static_cast<std::size_t>(spec_.num_classes)};
}

}  // namespace lockstep::data::detail
