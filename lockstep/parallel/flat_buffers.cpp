#include "lockstep/parallel/detail/flat_buffers.h"

namespace lockstep::parallel::detail {
namespace {

torch::Tensor view_of(const torch::Tensor& flat, const torch::Tensor& like,
                      const Slot& slot) {
  return flat.as_strided(like.sizes(), like.strides(), slot.offset);
}

}  // namespace

FlatBuffers::FlatBuffers(const std::vector<Parameter>& parameters,
                         std::vector<Group> groups)
    : groups_(std::move(groups)), gradient_views_(parameters.size()) {
  const torch::NoGradGuard no_grad;
  for (const auto& group : groups_) {
    const auto options = torch::dtype(group.dtype).device(group.device);
    values_.push_back(torch::zeros({group.numel}, options));
    gradients_.push_back(torch::zeros({group.numel}, options));
    for (const auto& slot : group.slots) {
      auto parameter = parameters[slot.parameter].tensor;
      const auto home = view_of(values_.back(), parameter, slot);
      home.copy_(parameter);
      auto gradient = view_of(gradients_.back(), parameter, slot);
      if (parameter.grad().defined()) gradient.copy_(parameter.grad());
      parameter.set_data(home);
      gradient_views_[slot.parameter] = gradient;
    }
  }
}

torch::Tensor FlatBuffers::bucket(std::size_t group, const Bucket& bucket) const {
  return gradients_[group].narrow(0, bucket.begin, bucket.end - bucket.begin);
}

}  // namespace lockstep::parallel::detail
