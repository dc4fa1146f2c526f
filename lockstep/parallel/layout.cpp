#include "lockstep/parallel/layout.h"

#include <algorithm>
#include <unordered_set>

#include "lockstep/base/error.h"

namespace lockstep::parallel {
namespace {

constexpr std::int64_t kAlignmentBytes = 64;

std::int64_t element_bytes(torch::Dtype dtype) {
  return static_cast<std::int64_t>(c10::elementSize(dtype));
}

Group& find_or_add_group(std::vector<Group>& groups, const torch::Tensor& tensor) {
  for (auto& group : groups) {
    if (group.dtype == tensor.scalar_type() && group.device == tensor.device()) {
      return group;
    }
  }
  groups.push_back({.dtype = tensor.scalar_type(), .device = tensor.device()});
  return groups.back();
}

std::int64_t round_up(std::int64_t number, std::int64_t unit) {
  return (number + unit - 1) / unit * unit;
}

// Returns the elements of a slot, with one more for the counter.
std::int64_t padded_size(const ParameterSlot& slot, std::int64_t bytes) {
  return round_up(slot.numel + 1, kAlignmentBytes / bytes);
}

// Shards begin where a vectorised optimizer begins again: there the bits do not depend
// on how a buffer is cut.
std::int64_t shard_unit(std::int64_t bytes) {
  constexpr std::int64_t kVectorElements = 16;
  return std::max(kAlignmentBytes / bytes, kVectorElements);
}

// Gives every slot its place, bucket by bucket.
void cut_into_buckets(Group& group, const std::vector<Parameter>& parameters,
                      const LayoutOptions& options) {
  const auto bytes = element_bytes(group.dtype);
  const auto part =
      group.numel * bytes / std::max<std::int64_t>(options.num_buckets, 1);
  const auto full =
      std::min(std::max(part, options.first_bucket_bytes), options.bucket_bytes);
  const auto unit_of = [&](std::size_t slot) {
    return parameters[group.slots[slot].parameter].unit;
  };
  group.numel = 0;
  Bucket bucket;
  for (std::size_t i = 0; i < group.slots.size(); ++i) {
    group.slots[i].offset = group.numel;
    group.numel += padded_size(group.slots[i], bytes);
    const auto limit = group.buckets.empty() ? options.first_bucket_bytes : full;
    const bool goes_on = i + 1 < group.slots.size() && unit_of(i) == unit_of(i + 1);
    if (goes_on && (group.numel - bucket.begin) * bytes < limit) continue;
    if (options.shards > 1) {
      group.numel = bucket.begin + round_up(group.numel - bucket.begin,
                                            options.shards * shard_unit(bytes));
    }
    bucket.end = group.numel;
    bucket.last_slot = i + 1;
    group.buckets.push_back(bucket);
    bucket.begin = bucket.end;
    bucket.first_slot = bucket.last_slot;
  }
}

}  // namespace

std::vector<Parameter> trainable_parameters(const torch::nn::Module& module) {
  std::vector<Parameter> list;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& item : module.named_parameters()) {
    const auto& tensor = item.value();
    if (!tensor.requires_grad()) continue;
    if (!seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    if (!tensor.is_non_overlapping_and_dense()) {
      throw Error(Fault::config, "parallel: parameter '", item.key(),
                  "' has elements that share memory; make it contiguous");
    }
    list.push_back({item.key(), tensor});
  }
  if (list.empty()) {
    throw Error(Fault::config, "parallel: the model has no trainable parameter");
  }
  return list;
}

std::vector<Parameter> frozen_parameters(const torch::nn::Module& module) {
  std::vector<Parameter> list;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& item : module.named_parameters()) {
    const auto& tensor = item.value();
    if (tensor.requires_grad() || !tensor.is_non_overlapping_and_dense()) continue;
    if (!seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    list.push_back({item.key(), tensor});
  }
  return list;
}

std::vector<Group> plan_layout(const std::vector<Parameter>& parameters,
                               const std::vector<std::size_t>& order,
                               const LayoutOptions& options) {
  LOCKSTEP_CHECK(order.size() == parameters.size(), order.size(), " of ",
                 parameters.size());
  std::vector<Group> groups;
  // The numbering of groups does not depend on the order.
  for (const auto& parameter : parameters) find_or_add_group(groups, parameter.tensor);
  for (const auto index : order) {
    const auto& tensor = parameters[index].tensor;
    auto& group = find_or_add_group(groups, tensor);
    group.slots.push_back({index, 0, tensor.numel()});
    group.numel += padded_size(group.slots.back(), element_bytes(group.dtype));
  }
  for (auto& group : groups) cut_into_buckets(group, parameters, options);
  return groups;
}

std::vector<std::size_t> reversed_order(std::size_t parameters) {
  std::vector<std::size_t> order(parameters);
  for (std::size_t i = 0; i < parameters; ++i) order[i] = parameters - 1 - i;
  return order;
}

}  // namespace lockstep::parallel
