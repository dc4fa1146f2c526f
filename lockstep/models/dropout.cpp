#include "lockstep/models/dropout.h"

#include <ATen/Context.h>

namespace lockstep::models {

void DropoutImpl::pretty_print(std::ostream& stream) const {
  stream << "lockstep::models::Dropout(p=" << probability_ << ")";
}

torch::Tensor DropoutImpl::forward(const torch::Tensor& input) {
  if (!generator_.defined() || !is_training() || probability_ == 0) {
    return torch::dropout(input, probability_, is_training());
  }
  if (probability_ == 1) return input * 0;
  const double keep = 1 - probability_;
  return input * torch::empty_like(input).bernoulli_(keep, generator_).div_(keep);
}

void seed_dropout(torch::nn::Module& model, std::uint64_t seed,
                  const torch::Device& device) {
  auto generator = at::globalContext().defaultGenerator(device).clone();
  generator.set_current_seed(seed);
  for (const auto& module : model.modules(/*include_self=*/false)) {
    if (auto* dropout = module->as<DropoutImpl>()) dropout->use(generator);
  }
}

}  // namespace lockstep::models
