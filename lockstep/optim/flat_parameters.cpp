#include "lockstep/optim/flat_parameters.h"

#include "lockstep/base/error.h"

namespace lockstep::optim {
namespace {

constexpr std::int64_t kAlignmentBytes = 64;

void check_alike(const torch::Tensor& first, const torch::Tensor& parameter,
                 const std::string& name) {
  if (parameter.dtype() != first.dtype() || parameter.device() != first.device()) {
    throw Error(Fault::config, "optim: parameter '", name, "' is ", parameter.dtype(),
                " on ", parameter.device(), ", the first one is ", first.dtype(),
                " on ", first.device(), "; all parameters of a model must be alike");
  }
  if (!parameter.is_non_overlapping_and_dense()) {
    throw Error(Fault::config, "optim: parameter '", name,
                "' has elements that share memory; make it contiguous");
  }
}

}  // namespace

FlatParameters::FlatParameters(torch::nn::Module& module) {
  std::int64_t total = 0;
  for (const auto& item : module.named_parameters()) {
    if (!item.value().requires_grad()) continue;
    const auto& first = entries_.empty() ? item.value() : entries_.front().parameter;
    check_alike(first, item.value(), item.key());
    entries_.push_back({item.key(), item.value(), total});
    const auto unit =
        kAlignmentBytes / static_cast<std::int64_t>(item.value().element_size());
    total += (item.value().numel() + unit - 1) / unit * unit;
    num_parameters_ += item.value().numel();
  }
  if (entries_.empty()) {
    throw Error(Fault::config, "optim: the model has no trainable parameter");
  }
  const auto options = entries_.front().parameter.options().requires_grad(false);
  values_ = torch::zeros({total}, options);
  gradients_ = torch::zeros({total}, options);
  const torch::NoGradGuard no_grad;
  for (auto& entry : entries_) {
    auto home = view(values_, entry);
    home.copy_(entry.parameter);
    entry.parameter.set_data(home);
    entry.parameter.mutable_grad() = view(gradients_, entry);
  }
}

torch::Tensor FlatParameters::view(const torch::Tensor& flat,
                                   const Entry& entry) const {
  return flat.as_strided(entry.parameter.sizes(), entry.parameter.strides(),
                         entry.offset);
}

void FlatParameters::zero_gradients() {
  gradients_.zero_();
}

}  // namespace lockstep::optim
