#include "lockstep/train/own_passes.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/config/decisions.h"
#include "lockstep/kernels/cuda.h"
#include "lockstep/kernels/gemm.h"
#include "lockstep/kernels/layer_norm.h"

namespace lockstep::train {
namespace {

bool shards_parameters(const config::ParallelConfig& parallel) {
  return parallel.strategy == config::Strategy::zero &&
         parallel.zero_stage.value() == 3;
}

bool is_packed(const models::Shape& shape) {
  return std::any_of(shape.tensors.begin(), shape.tensors.end(),
                     [](const auto& tensor) { return tensor.name == "segment"; });
}

}  // namespace

std::string obstacle_to_own_passes(const config::Config& config,
                                   const models::Shape& shape, bool is_cuda) {
  if (!is_cuda) return "they need a GPU";
  const auto of_model = obstacle_in_model(config, shape);
  return of_model.empty() ? config::obstacle_to_own_passes(config) : of_model;
}

std::string obstacle_in_model(const config::Config& config,
                              const models::Shape& shape) {
  if (!kernels::cuda_available() || !kernels::gemms_available()) {
    return "this build has no kernels of its own, or no cuBLASLt";
  }
  if (is_packed(shape)) return "samples hold several documents (data.pack)";
  if (config.model.hidden > kernels::kWidestLayerNorm) {
    return str("model.hidden is above ", kernels::kWidestLayerNorm);
  }
  return "";
}

config::ModelConfig with_passes(const config::Config& config, const PassSite& site) {
  auto model = config.model;
  if (!model.own_backward.is_auto()) return model;
  if (model.name != "gpt") {
    model.own_backward = false;
    return model;
  }
  const auto why = obstacle_to_own_passes(config, site.shape, site.is_cuda);
  model.own_backward = why.empty();
  if (site.tells && site.is_cuda) {
    log::info("train", why.empty() ? "the gpt's hand-written passes, with fused kernels"
                                   : str("autograd's passes, not the gpt's "
                                         "hand-written passes, which are faster: ",
                                         why));
  }
  return model;
}

// A model's own backward pass is written in the dtype of the parameters.
void check_own_passes(const config::Config& config, models::Model& model) {
  if (model.own_backward() == nullptr) return;
  if (model.num_blocks() > 0 && shards_parameters(config.parallel)) {
    throw Error(Fault::config,
                "parallel.zero_stage: 3 gathers parameters block by block, and the "
                "model's own backward pass needs all of them; set it to 2, or "
                "model.own_backward=false");
  }
  if (config.memory.recompute_every.value() > 0) {
    throw Error(Fault::config,
                "memory.recompute_every: the model's own backward pass "
                "computes no blocks again; set it to 0, or model.own_backward=false");
  }
  const auto mode = config.precision.mode;
  const bool casts = mode == config::Precision::bf16 || mode == config::Precision::fp16;
  if (!casts) return;
  throw Error(
      Fault::config, "precision.mode: ", config::name_of(mode),
      " lets autograd cast weights, which a backward pass of the model's own "
      "does not; set precision.mode to fp32, fp64, bf16_params or fp16_params, or "
      "model.own_backward=false");
}

}  // namespace lockstep::train
