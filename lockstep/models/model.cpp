#include "lockstep/models/model.h"

#include <c10/util/accumulate.h>

#include "lockstep/base/error.h"

namespace lockstep::models {

std::int64_t Shape::num_outputs() const {
  if (num_classes > 0) return num_classes;
  for (const auto& tensor : tensors) {
    if (tensor.name == "target") return c10::multiply_integers(tensor.shape);
  }
  return num_classes;
}

torch::Tensor Model::forward(const torch::Tensor&) {
  throw Error(Fault::internal,
              "models: a model implements neither forward() nor forward_named()");
}

Named Model::forward_named(const Named& inputs) {
  return {{"output", forward(inputs.at("input"))}};
}

void Model::add_block(std::shared_ptr<torch::nn::Module> module,
                      BlockFunction compute) {
  blocks_.push_back({std::move(module), std::move(compute)});
}

torch::Tensor Model::run_blocks(torch::Tensor x) {
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const auto& [module, compute] = blocks_[i];
    if (watch_) watch_(i, x);
    const bool again = recompute_every_ > 0 && is_training() &&
                       i % static_cast<std::size_t>(recompute_every_) == 0;
    const auto run = [&, &block = *module, &own = compute](const torch::Tensor& input) {
      return again ? recomputed(block, own, input) : own(input);
    };
    x = runner_ ? runner_(i, run, x) : run(x);
  }
  if (watch_ && !blocks_.empty()) watch_(blocks_.size(), x);
  return x;
}

}  // namespace lockstep::models
