// What a plan says about the run that it is for.
#include <cmath>

#include "lockstep/base/units.h"
#include "lockstep/planner/detail/resolver.h"
#include "lockstep/planner/search.h"

namespace lockstep::planner::detail {
namespace {

using hardware::Machine;

Candidate candidate_of(const config::Config& config) {
  return {.method = asked_of(config).method.value_or(Method::single),
          .ranks = config.parallel.ranks.value(),
          .micro = config.batch.micro.value(),
          .accumulation = config.batch.accumulation.value(),
          .recompute = config.memory.recompute_every.value() > 0,
          .offload = config.memory.offload.value()};
}

std::optional<double> steps_of(const config::Config& config, const Model& model) {
  if (config.train.fast_dev_run > 0) return config.train.fast_dev_run;
  if (const auto steps = config.train.steps.value(); steps > 0) return steps;
  auto samples =
      config.data.train_samples > 0 ? config.data.train_samples : model.train_samples;
  if (model.train_samples > 0) samples = std::min(samples, model.train_samples);
  if (samples == 0) return std::nullopt;
  auto per_epoch = std::ceil(static_cast<double>(samples) /
                             static_cast<double>(config.batch.global.value()));
  if (const auto limit = config.train.limit_train_batches; limit > 0) {
    per_epoch = std::min(per_epoch, static_cast<double>(limit));
  }
  return per_epoch * static_cast<double>(config.train.epochs.value());
}

std::string bytes_text(double bytes) {
  return units::format_bytes(static_cast<std::int64_t>(bytes));
}

// A machine with more of the same GPUs.
Machine with_more_gpus(Machine machine, int more) {
  for (int i = 0; i < more; ++i) {
    auto gpu = machine.gpus[0];
    gpu.index = static_cast<int>(machine.gpus.size());
    machine.gpus.push_back(gpu);
  }
  return machine;
}

void hint_at_gpus(Plan& plan, const Scene& scene, const Prediction& now) {
  if (scene.config.parallel.device != config::Device::cuda) return;
  constexpr int kMore = 2;
  const auto machine = with_more_gpus(scene.machine, kMore);
  const Scene larger{scene.config, machine, scene.model, scene.correction};
  auto candidate = now.candidate;
  candidate.ranks += kMore;
  if (candidate.method == Method::single) candidate.method = Method::ddp;
  const auto then = predict(larger, candidate);
  plan.hints.push_back(str(
      "two more GPUs (", candidate.ranks, " ranks, batch.global ", candidate.global(),
      "): ", units::format_rate(then.samples_per_second), " samples/s, ",
      std::round(100 * then.samples_per_second / now.samples_per_second) / 100,
      " x as fast, ", bytes_text(then.memory.peak()), " a rank"));
}

void hint_at_sequence(Plan& plan, const Scene& scene, const Prediction& now) {
  if (scene.model.sequence < 2) return;
  const auto half = scene.model.with_half_sequence();
  const Scene shorter{scene.config, scene.machine, half, scene.correction};
  const auto then = predict(shorter, now.candidate);
  plan.hints.push_back(str(
      "half the sequence (", half.sequence,
      " tokens): ", bytes_text(then.memory.peak()), " a rank instead of ",
      bytes_text(now.memory.peak()), ", ",
      units::format_rate(then.samples_per_second * static_cast<double>(half.sequence)),
      " tokens/s instead of ",
      units::format_rate(now.samples_per_second *
                         static_cast<double>(scene.model.sequence))));
}

void hint_at_recompute(Plan& plan, const Scene& scene, const Prediction& now) {
  if (!scene.model.can_recompute() || scene.config.parallel.sync_batch_norm) return;
  auto candidate = now.candidate;
  candidate.recompute = !candidate.recompute;
  const auto then = predict(scene, candidate);
  plan.hints.push_back(str(candidate.recompute ? "with" : "without", " recomputing: ",
                           bytes_text(then.memory.peak()), " a rank, ",
                           units::format_rate(then.samples_per_second), " samples/s"));
}

// What helps when the step runs out of memory, if anything does.
std::string remedy_for(const Scene& scene, const Prediction& now) {
  const auto& config = scene.config;
  auto smallest = now.candidate;
  smallest.micro = 1;
  smallest.accumulation = now.candidate.micro * now.candidate.accumulation;
  // The last thing that a retry does.
  smallest.recompute |= scene.model.can_recompute() && !config.parallel.sync_batch_norm;
  if (const auto least = predict(scene, smallest); !least.fits()) {
    return str("; one sample at a time needs ", bytes_text(least.memory.peak()),
               ", so that it will most likely run out of memory");
  }
  const bool retries = config.memory.on_out_of_memory == config::OnOutOfMemory::retry &&
                       !config.parallel.sync_batch_norm;  // ranks pass together
  return retries ? "; if it runs out of memory, the step is done in smaller pieces"
                 : "; it may run out of memory: lower batch.micro";
}

void note_what_is_close(Plan& plan, const Scene& scene, const Prediction& now) {
  if (now.fits()) return;
  plan.notes.push_back(str("batch.micro ", now.candidate.micro,
                           " is predicted to need ", bytes_text(now.memory.peak()),
                           " > ", memory_limit(scene, now.candidate).because, ": ",
                           terms_of(now.memory), remedy_for(scene, now)));
}

}  // namespace

void foresee(Plan& plan, const Machine& machine, const Knowledge& knowledge) {
  const auto& config = plan.config.config;
  plan.environment = variables_for(config, machine, knowledge.set_variables);
  if (!knowledge.model) {
    if (!knowledge.no_model.empty()) {
      plan.notes.push_back("no prediction: " + knowledge.no_model);
    }
    return;
  }
  const Scene scene{config, machine, *knowledge.model, knowledge.correction};
  const auto now = predict(scene, candidate_of(config));
  check_state(scene, now, plan.candidates);
  plan.model = knowledge.model->name;
  plan.correction = knowledge.correction;
  constexpr double kPasses = 3;  // backward is two
  plan.flops_per_sample = kPasses * scene.model.forward_flops();
  plan.peak_flops = peak_flops(scene, now.candidate.ranks);
  plan.scaling = scaling_of(scene, now.candidate);
  if (const auto steps = steps_of(config, scene.model)) {
    plan.seconds = *steps * now.time.step();
  }
  hint_at_gpus(plan, scene, now);
  hint_at_sequence(plan, scene, now);
  hint_at_recompute(plan, scene, now);
  note_what_is_close(plan, scene, now);
  // By a rule that does not look at predictions, another one may have been taken.
  for (auto& outcome : plan.candidates) {
    const auto& c = outcome.prediction.candidate;
    const bool taken =
        c.method == now.candidate.method && c.ranks == now.candidate.ranks &&
        c.micro == now.candidate.micro && c.recompute == now.candidate.recompute &&
        c.offload == now.candidate.offload;
    if (taken) {
      outcome.lost = "";
    } else if (outcome.lost.empty()) {
      outcome.lost =
          str("policy ", name_of(config.planner.policy), " has another rule");
    }
  }
  plan.prediction = now;
}

}  // namespace lockstep::planner::detail
