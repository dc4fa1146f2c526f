#include "lockstep/parallel/detail/flat_buffers.h"

#include <cstring>

#include <ATen/ops/_foreach_copy.h>

#include "lockstep/precision/without_memory.h"

namespace lockstep::parallel::detail {
namespace {

torch::Tensor view_of(const torch::Tensor& flat, const torch::Tensor& like,
                      const ParameterSlot& slot) {
  return flat.as_strided(like.sizes(), like.strides(), slot.offset);
}

torch::Tensor zeros_for(comm::Communicator& data, const Group& group) {
  if (group.device != data.device()) {
    return torch::zeros({group.numel}, torch::dtype(group.dtype).device(group.device));
  }
  return data.empty_buffer(group.numel, group.dtype).zero_();
}

// Returns whether both are the same bytes in the same order: nothing to convert.
bool is_plain_copy(const torch::Tensor& to, const torch::Tensor& from) {
  return from.layout() == torch::kStrided && from.device().is_cpu() &&
         to.device().is_cpu() && from.scalar_type() == to.scalar_type() &&
         from.sizes() == to.sizes() && from.strides() == to.strides() &&
         !from.is_conj() && !from.is_neg();
}

}  // namespace

FlatBuffers::FlatBuffers(const std::vector<Parameter>& parameters,
                         std::vector<Group> groups, const Kind& kind)
    : parameters_(parameters),
      groups_(std::move(groups)),
      gradient_views_(parameters.size()) {
  const torch::NoGradGuard no_grad;
  for (const auto& group : groups_) {
    const auto options = torch::dtype(group.dtype).device(group.device);
    values_.push_back(!kind.has_values     ? torch::Tensor()
                      : kind.values_travel ? zeros_for(kind.data, group)
                                           : torch::zeros({group.numel}, options));
    for (const auto& slot : group.slots) {
      if (!kind.has_values) break;
      auto parameter = parameters[slot.parameter].tensor;
      const auto home = view_of(values_.back(), parameter, slot);
      if (precision::has_memory(parameter)) home.copy_(parameter);
      parameter.set_data(home);
    }
  }
  // After the values: what these had before is free then.
  for (const auto& group : groups_) {
    gradients_.push_back(kind.has_gradients ? zeros_for(kind.data, group)
                                            : torch::Tensor());
    for (const auto& slot : group.slots) {
      if (!kind.has_gradients) break;
      const auto& parameter = parameters[slot.parameter].tensor;
      auto gradient = view_of(gradients_.back(), parameter, slot);
      if (parameter.grad().defined()) gradient.copy_(parameter.grad());
      gradient_views_[slot.parameter] = gradient;
    }
  }
}

torch::Tensor FlatBuffers::bucket(std::size_t group, const Bucket& bucket) const {
  return gradients_[group].narrow(0, bucket.begin, bucket.end - bucket.begin);
}

void FlatBuffers::fill_gradient(std::size_t parameter,
                                const torch::Tensor& from) const {
  // Above this size an operation of LibTorch is as fast, and uses this rank's threads.
  constexpr std::size_t kSmallBytes = 1 << 18;
  const auto& view = gradient_views_[parameter];
  if (from.numel() == 0) return;
  if (view.nbytes() <= kSmallBytes && is_plain_copy(view, from)) {
    std::memcpy(view.mutable_data_ptr(), from.const_data_ptr(), view.nbytes());
    return;
  }
  view.copy_(from.layout() == torch::kStrided ? from : from.to_dense());
}

void FlatBuffers::fill_gradients(const std::vector<std::size_t>& parameters,
                                 const std::vector<torch::Tensor>& from) const {
  std::vector<torch::Tensor> to, like;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (from[i].layout() != torch::kStrided || from[i].numel() == 0) {
      fill_gradient(parameters[i], from[i]);
      continue;
    }
    to.push_back(gradient_views_[parameters[i]]);
    like.push_back(from[i]);
  }
  if (!to.empty()) at::_foreach_copy_(to, like);
}

}  // namespace lockstep::parallel::detail
