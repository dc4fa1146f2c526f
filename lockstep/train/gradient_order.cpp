#include "lockstep/train/gradient_order.h"

#include "lockstep/base/library_error.h"
#include "lockstep/base/log.h"
#include "lockstep/data/stage.h"
#include "lockstep/models/deferred.h"
#include "lockstep/models/lora.h"
#include "lockstep/parallel/backward_order.h"
#include "lockstep/train/build.h"

namespace lockstep::train {
namespace {

std::shared_ptr<models::Model> without_memory(const config::Config& config,
                                              const data::SampleSpec& spec) {
  const models::DeferredMemory deferred;
  auto model = models::build(config.model, shape_of(spec));
  if (config.lora.rank > 0) models::add_lora(*model, config.lora);
  model->recompute_every(config.memory.recompute_every.value());
  return model;
}

// Any loss will do: which gradient comes when depends on the model.
void pass(models::Model& model, const data::SampleSpec& spec) {
  constexpr std::int64_t kSamples = 2;  // batch normalisation needs more than one
  const torch::Device meta(torch::kMeta);
  const auto batch = data::made_up_batch(spec, kSamples, meta);
  data::BatchStage stage({.spec = spec,
                          .wanted = data::wanted_by(model.inputs(), {}),
                          .format = model.memory_format(),
                          .device = meta});
  stage.reserve(kSamples);
  const auto& staged = stage.stage(batch, 0, kSamples);
  Named inputs;
  for (const auto& name : model.inputs()) inputs.set(name, staged.at(name));
  torch::Tensor total;
  for (const auto& output : model.forward_named(inputs)) {
    const auto sum = output.tensor.sum();
    total = total.defined() ? total + sum : sum;
  }
  total.backward();
}

}  // namespace

std::vector<std::string> gradient_order(const config::Config& config,
                                        const Shared& shared) {
  if (shared.hooks.build_model) return {};
  const auto& spec = shared.train_data->spec();
  try {
    const auto model = without_memory(config, spec);
    return parallel::backward_order(*model, [&] { pass(*model, spec); });
  } catch (const std::exception& error) {
    log::info("train", str("buckets follow the order of the parameters, last to first: "
                           "a pass on meta tensors is not possible (",
                           first_line_of(error), ")"));
    return {};
  }
}

}  // namespace lockstep::train
