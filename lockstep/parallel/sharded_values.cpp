#include "lockstep/parallel/detail/sharded_values.h"

#include "lockstep/base/error.h"

namespace lockstep::parallel::detail {
namespace {

c10::StorageImpl& storage_of(const torch::Tensor& tensor) {
  return *tensor.storage().unsafeGetStorageImpl();
}

std::size_t bytes_of(const torch::Tensor& flat) {
  return static_cast<std::size_t>(flat.numel()) * flat.element_size();
}

}  // namespace

ShardedValues::ShardedValues(const std::vector<Parameter>& parameters,
                             const std::vector<Group>& groups, comm::Communicator& data)
    : data_(data), bucket_of_(parameters.size()) {
  const torch::NoGradGuard no_grad;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const auto& group = groups[g];
    for (const auto& bucket : group.buckets) {
      BucketValues values;
      values.whole = torch::zeros({bucket.end - bucket.begin},
                                  torch::dtype(group.dtype).device(group.device));
      for (auto s = bucket.first_slot; s < bucket.last_slot; ++s) {
        const auto& slot = group.slots[s];
        auto parameter = parameters[slot.parameter].tensor;
        const auto home = values.whole.as_strided(
            parameter.sizes(), parameter.strides(), slot.offset - bucket.begin);
        home.copy_(parameter);
        parameter.set_data(home);
        bucket_of_[slot.parameter] = buckets_.size();
      }
      if (data.size() > 1) data.broadcast(values.whole, 0).wait();
      auto shard = shard_of(g, bucket, {data.rank(), data.size()});
      shard.offset -= bucket.begin;
      values.shard = shard.of(values.whole).clone();
      buckets_.push_back(std::move(values));
      free(buckets_.size() - 1);
    }
  }
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

std::int64_t ShardedValues::num_bytes(std::size_t bucket) const {
  return static_cast<std::int64_t>(bytes_of(buckets_[bucket].whole));
}

}  // namespace lockstep::parallel::detail
