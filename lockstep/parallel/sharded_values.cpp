#include "lockstep/parallel/detail/sharded_values.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/precision/without_memory.h"

namespace lockstep::parallel::detail {
namespace {

c10::StorageImpl& storage_of(const torch::Tensor& tensor) {
  return *tensor.storage().unsafeGetStorageImpl();
}

std::size_t bytes_of(const torch::Tensor& flat) {
  return static_cast<std::size_t>(flat.numel()) * flat.element_size();
}

// Returns a tensor of which views can be made, though there is no memory in it.
torch::Tensor without_memory(std::int64_t numel, const Group& group) {
  auto flat = torch::empty({0}, torch::dtype(group.dtype).device(group.device));
  flat.unsafeGetTensorImpl()->set_sizes_contiguous({numel});
  storage_of(flat).set_nbytes(bytes_of(flat));
  return flat;
}

}  // namespace

std::size_t ShardedValues::add(const std::vector<Parameter>& parameters,
                               const std::vector<Group>& groups) {
  const torch::NoGradGuard no_grad;
  const auto first = buckets_.size();
  for (const auto& group : groups) {
    for (const auto& bucket : group.buckets) add_bucket(parameters, group, bucket);
  }
  return first;
}

// One bucket is whole at a time, beside what the parameters had.
void ShardedValues::add_bucket(const std::vector<Parameter>& parameters,
                               const Group& group, const Bucket& bucket) {
  const auto numel = bucket.end - bucket.begin;
  const auto options = torch::dtype(group.dtype).device(group.device);
  BucketValues values;
  values.whole = without_memory(numel, group);
  auto shard = shard_of(0, bucket, {data_.rank(), data_.size()});
  values.begin = shard.offset - bucket.begin;
  torch::Tensor filled;
  for (auto s = bucket.first_slot; s < bucket.last_slot; ++s) {
    const auto& slot = group.slots[s];
    auto parameter = parameters[slot.parameter].tensor;
    const Place place{buckets_.size(), slot.offset - bucket.begin};
    places_[parameter.unsafeGetTensorImpl()] = place;
    if (precision::has_memory(parameter)) {
      if (!filled.defined()) filled = torch::zeros({numel}, options);
      filled.as_strided(parameter.sizes(), parameter.strides(), place.offset)
          .copy_(parameter);
    }
    parameter.set_data(
        values.whole.as_strided(parameter.sizes(), parameter.strides(), place.offset));
  }
  if (filled.defined()) {
    if (data_.size() > 1) ranks_.all.broadcast(filled, 0).wait();
    values.shard = filled.narrow(0, values.begin, shard.size).clone();
  } else {
    values.shard = torch::zeros({shard.size}, options);
  }
  buckets_.push_back(std::move(values));
  free(buckets_.size() - 1);
}

comm::Pending ShardedValues::gather(std::size_t bucket) {
  const torch::NoGradGuard no_grad;
  auto& values = buckets_[bucket];
  LOCKSTEP_CHECK(!values.whole_now, "bucket ", bucket, " is whole already");
  const auto bytes = bytes_of(values.whole);
  auto& storage = storage_of(values.whole);
  storage.set_data_ptr_noswap(
      c10::GetAllocator(values.whole.device().type())->allocate(bytes));
  storage.set_nbytes(bytes);
  values.whole_now = true;
  if (data_.size() > 1) return data_.all_gather(values.whole, values.shard);
  values.whole.copy_(values.shard);
  return {};
}

void ShardedValues::free(std::size_t bucket) {
  auto& values = buckets_[bucket];
  auto& storage = storage_of(values.whole);
  storage.set_data_ptr_noswap(c10::DataPtr(nullptr, values.whole.device()));
  storage.set_nbytes(0);
  values.whole_now = false;
}

void ShardedValues::set(const torch::Tensor& parameter, const torch::Tensor& value) {
  const torch::NoGradGuard no_grad;
  const auto place = places_.at(parameter.unsafeGetTensorImpl());
  auto& values = buckets_[place.bucket];
  const auto begin = std::max(place.offset, values.begin);
  const auto end =
      std::min(place.offset + parameter.numel(), values.begin + values.shard.numel());
  if (begin >= end) return;
  // In the order in which the parameter lies in memory.
  torch::Tensor flat;
  if (value.strides() == parameter.strides()) {
    flat = value.as_strided({parameter.numel()}, {1}, value.storage_offset());
  } else {
    flat = torch::empty({parameter.numel()}, value.options());
    flat.as_strided(parameter.sizes(), parameter.strides()).copy_(value);
  }
  values.shard.narrow(0, begin - values.begin, end - begin)
      .copy_(flat.narrow(0, begin - place.offset, end - begin));
}

std::int64_t ShardedValues::num_bytes(std::size_t bucket) const {
  return static_cast<std::int64_t>(bytes_of(buckets_[bucket].whole));
}

bool ShardedValues::has(const torch::Tensor& parameter) const {
  return places_.contains(parameter.unsafeGetTensorImpl());
}

std::size_t ShardedValues::bucket_of(const torch::Tensor& parameter) const {
  return places_.at(parameter.unsafeGetTensorImpl()).bucket;
}

}  // namespace lockstep::parallel::detail
