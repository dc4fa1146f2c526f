#include "lockstep/inference/trained.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/open.h"
#include "lockstep/data/stage.h"
#include "lockstep/inference/script_notes.h"
#include "lockstep/models/script.h"
#include "lockstep/run/rank_environment.h"
#include "lockstep/train/device.h"
#include "lockstep/train/evaluate.h"
#include "lockstep/train/step.h"

namespace lockstep::inference {
namespace {

// One rank makes no use of what several have.
config::Config alone(config::Config config) {
  config.parallel.strategy = config::Strategy::single;
  return config;
}

// A program is tried with so many samples.
constexpr std::int64_t kTried = 3;

}  // namespace

Trained::Trained(const config::Config& config)
    : config_(alone(config)),
      world_(comm::join(
          run::RankEnvironment{},
          {.config = config_.comm, .device = train::choose_device(config_.parallel)})),
      shared_(train::open_shared(config_)),
      built_(train::build(config_, world_, *shared_)) {}

task::Means Trained::evaluate() {
  const auto means = train::evaluate(*built_.model, *shared_->eval_data,
                                     {.loader = data::eval_options(config_, {}),
                                      .batch = config_.batch.eval.value(),
                                      .retries = true,
                                      .policy = built_.policy,
                                      .world = world_,
                                      .task = *built_.task});
  LOCKSTEP_CHECK(means);  // nobody asks it to leave
  return *means;
}

void Trained::predict(const data::Dataset& samples, const Take& take) {
  const torch::NoGradGuard no_grad;
  built_.model->eval();
  auto options = data::eval_options(config_, {});
  const auto largest =
      std::max<std::int64_t>(1, std::min(config_.batch.eval.value(), samples.size()));
  options.batch = largest;
  data::Loader loader(samples, options);
  data::BatchStage stage({.spec = samples.spec(),
                          .wanted = data::wanted_by(built_.model->inputs(), {}),
                          .format = built_.model->memory_format(),
                          .device = built_.policy.device});
  stage.reserve(largest);
  train::Forward forward(*built_.model, built_.policy);
  std::int64_t index = 0;
  while (const auto* batch = loader.next()) {
    const auto outputs = forward(stage.stage(*batch, 0, batch->size));
    for (const auto& prediction : predictions_of(*built_.task, outputs)) {
      take(index++, prediction);
    }
  }
  built_.model->train();
}

std::string Trained::write_script(const std::filesystem::path& path) {
  const torch::NoGradGuard no_grad;
  auto& model = *built_.model;
  const auto& samples = *shared_->eval_data;
  auto options = data::eval_options(config_, {});
  options.batch = std::min(kTried, samples.size());
  data::Loader loader(samples, options);
  data::BatchStage stage({.spec = samples.spec(),
                          .wanted = data::wanted_by(model.inputs(), {}),
                          .format = model.memory_format()});
  stage.reserve(options.batch);
  const auto* batch = loader.next();
  if (batch == nullptr) {
    throw Error(Fault::config,
                "torchscript: a program is tried on samples of the evaluation, but "
                "data.eval_samples leaves none");
  }
  Named inputs;
  const auto& staged = stage.stage(*batch, 0, batch->size);
  for (const auto& name : model.inputs()) inputs.set(name, staged.at(name).clone());
  model.eval();
  const auto outputs = model.forward_named(inputs);
  const auto notes = script_notes({*built_.task, samples.spec(), inputs, outputs});
  models::write_script(model, inputs, {path, notes});
  model.train();
  return notes;
}

}  // namespace lockstep::inference
