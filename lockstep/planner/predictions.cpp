// Computes what a plan says about its run.
#include <algorithm>
#include <cmath>

#include "lockstep/base/units.h"
#include "lockstep/config/run_length.h"
#include "lockstep/planner/detail/resolver.h"
#include "lockstep/planner/detail/search.h"

namespace lockstep::planner::detail {

namespace {

int shard_group_of(const config::ParallelConfig& parallel) {
  const int group = parallel.shard_group.value_or(0);
  const bool used = parallel.strategy == config::Strategy::zero;
  return used && group < parallel.ranks.value() ? group : 0;
}

}  // namespace

Candidate candidate_of(const config::Config& config) {
  return {.method = constraints_of(config).method.value_or(Method::single),
          .ranks = config.parallel.ranks.value(),
          .micro = config.batch.micro.value(),
          .accumulation = config.batch.accumulation.value(),
          .recompute = config.memory.recompute_every.value() > 0,
          .offload = config.memory.offload.value(),
          .shard_group = shard_group_of(config.parallel)};
}

// Numbers of threads that were chosen for one candidate are not another's.
config::Config reopened(const Plan& plan) {
  auto config = plan.config.config;
  const auto chosen = [&](const std::string& key) {
    const auto found = plan.config.sources.find(key);
    return found != plan.config.sources.end() &&
           found->second.origin == config::Origin::planner;
  };
  if (chosen("data.workers")) config.data.workers = config::Auto<int>();
  if (chosen("parallel.threads")) config.parallel.threads = config::Auto<int>();
  return config;
}

namespace {

using hardware::Machine;

// Returns nothing if it follows from samples whose number is not known.
std::optional<double> total_steps(const config::Config& config,
                                  const run::ModelDescription& model) {
  auto samples =
      config.data.train_samples > 0 ? config.data.train_samples : model.train_samples;
  if (model.train_samples > 0) samples = std::min(samples, model.train_samples);
  const auto few = config.train.overfit_batches * config.batch.global.value();
  if (few > 0) samples = samples > 0 ? std::min(samples, few) : few;
  const bool counts_samples = config.train.steps.value() == 0;
  if (samples == 0 && counts_samples) {
    const auto steps = config.train.fast_dev_run;
    return steps > 0 ? std::optional(static_cast<double>(steps)) : std::nullopt;
  }
  // Where steps are counted, any number of samples is as good.
  const auto known = samples > 0 ? samples : config.batch.global.value();
  return static_cast<double>(config::run_length(config, known).last_step);
}

// Returns a machine with more of the same GPUs.
Machine with_more_gpus(Machine machine, int more) {
  for (int i = 0; i < more; ++i) {
    auto gpu = machine.gpus[0];
    gpu.index = static_cast<int>(machine.gpus.size());
    machine.gpus.push_back(gpu);
  }
  return machine;
}

constexpr double kMuchWaiting = 0.05;  // of a step

// Returns the term of a step that decides how long it takes. Loading runs behind all
// others, so that a device waits only where loading takes longer than these together.
std::string bottleneck_of(const TimeCost& time) {
  if (time.data_wait >= kMuchWaiting * time.step()) return "data loading";
  if (time.exposed > time.compute) return "communication";
  if (time.offload > time.compute) return "offloading";
  return time.host_bound ? "kernel launches" : "compute";
}

// A run that waits for its data is told what would change that.
void note_what_waits(Plan& plan, const CostInputs& inputs) {
  const auto& [candidate, memory, time, limit, rate] = *plan.prediction;
  if (time.data_wait < kMuchWaiting * time.step()) return;
  const int ranks = candidate.ranks;
  const double loaded = ranks * time.workers / load_seconds(inputs);
  const double without = rate * time.step() / (time.step() - time.data_wait);
  const bool chosen =
      plan.config.sources.at("data.workers").origin == config::Origin::planner;
  plan.notes.push_back(str(
      "data loading is the bottleneck: ", ranks * time.workers,
      " loader threads deliver ", units::format_rate(loaded), " samples/s, the ",
      ranks == 1 ? "device" : "devices", " could process ", units::format_rate(without),
      chosen ? "; more cores, or samples that need less decoding, would help"
             : str("; raise data.workers (now ", time.workers, ")")));
}

// The best of a larger machine, each rank having the same share. More GPUs are of no
// use where some are idle already.
void hint_at_gpus(Plan& plan, const CostInputs& inputs, const Constraints& wanted) {
  const auto& now = *plan.prediction;
  const auto gpus = static_cast<int>(inputs.machine.gpus.size());
  if (!inputs.on_gpu() || now.candidate.ranks != gpus) return;
  constexpr int kMore = 2;
  const auto machine = with_more_gpus(inputs.machine, kMore);
  auto constraints = wanted;
  constraints.ranks = gpus + kMore;
  constraints.global.reset();
  constraints.per_rank = now.candidate.micro * now.candidate.accumulation;
  if (constraints.method == Method::single) constraints.method = Method::ddp;
  const auto config = reopened(plan);
  const CostInputs larger{config, machine, inputs.model, inputs.correction};
  const auto list = outcomes(larger, constraints);
  if (list.empty() || !list[0].lost.empty()) return;
  const auto& then = list[0].prediction;
  const auto& c = then.candidate;
  plan.hints.push_back(str(
      "two more GPUs (", name_of(c.method), " over ", c.ranks, " ranks, batch.global ",
      c.global(), "): ", units::format_rate(then.samples_per_second), " samples/s, ",
      std::round(100 * then.samples_per_second / now.samples_per_second) / 100,
      " x as fast, ", units::format_bytes(then.memory.peak()), " a rank"));
}

void hint_at_sequence(Plan& plan, const CostInputs& inputs, const Prediction& now) {
  if (inputs.model.sequence < 2) return;
  const auto half = inputs.model.with_half_sequence();
  const CostInputs shorter{inputs.config, inputs.machine, half, inputs.correction};
  const auto then = predict(shorter, now.candidate);
  if (!then.fits()) return;
  plan.hints.push_back(str(
      "half the sequence (", half.sequence,
      " tokens): ", units::format_bytes(then.memory.peak()), " a rank instead of ",
      units::format_bytes(now.memory.peak()), ", ",
      units::format_rate(then.samples_per_second * static_cast<double>(half.sequence)),
      " tokens/s instead of ",
      units::format_rate(now.samples_per_second *
                         static_cast<double>(inputs.model.sequence))));
}

void hint_at_recompute(Plan& plan, const CostInputs& inputs, const Prediction& now) {
  if (!inputs.model.can_recompute() || inputs.config.parallel.sync_batch_norm) return;
  auto candidate = now.candidate;
  candidate.recompute = !candidate.recompute;
  const auto then = predict(inputs, candidate);
  const auto lacks = memory_lack(inputs, then);
  plan.hints.push_back(
      str(candidate.recompute ? "with" : "without", " recomputing: ",
          lacks.empty() ? str(units::format_bytes(then.memory.peak()), " a rank, ",
                              units::format_rate(then.samples_per_second), " samples/s")
                        : "does not fit: " + lacks));
}

// Returns what helps when the step runs out of memory, if anything does.
std::string remedy_for(const CostInputs& inputs, const Prediction& now) {
  const auto& config = inputs.config;
  auto smallest = now.candidate;
  smallest.micro = 1;
  smallest.accumulation = now.candidate.micro * now.candidate.accumulation;
  // Recomputing is the last thing that a retry does.
  smallest.recompute |=
      inputs.model.can_recompute() && !config.parallel.sync_batch_norm;
  if (const auto least = predict(inputs, smallest); !least.fits()) {
    return str("; one sample at a time needs ",
               units::format_bytes(least.memory.peak()),
               ": expect an out-of-memory error");
  }
  const bool retries = config.memory.on_out_of_memory == config::OnOutOfMemory::retry &&
                       !config.parallel.sync_batch_norm;  // ranks pass together
  return retries ? "; on out-of-memory the step is retried with smaller micro-batches"
                 : "; it may run out of memory: lower batch.micro";
}

void note_what_is_close(Plan& plan, const CostInputs& inputs, const Prediction& now) {
  if (now.fits()) return;
  plan.notes.push_back(str("batch.micro ", now.candidate.micro,
                           " is predicted to need ",
                           units::format_bytes(now.memory.peak()), " > ",
                           memory_limit(inputs, now.candidate).because, ": ",
                           terms_of(now.memory), remedy_for(inputs, now)));
}

}  // namespace

namespace {

// A rule that does not look at predictions may have taken another candidate.
void mark_taken(Plan& plan) {
  const auto& now = plan.prediction->candidate;
  const auto policy = name_of(plan.config.config.planner.policy);
  for (auto& [prediction, lost] : plan.candidates) {
    const auto& c = prediction.candidate;
    const bool taken = c.method == now.method && c.ranks == now.ranks &&
                       c.micro == now.micro && c.recompute == now.recompute &&
                       c.offload == now.offload && c.sharers() == now.sharers();
    if (taken) {
      lost = "";
    } else if (lost.empty()) {
      lost = str("policy ", policy, " rules it out");
    }
  }
}

void add_hints(Plan& plan, const CostInputs& inputs, const Constraints& wanted) {
  const auto& now = *plan.prediction;
  hint_at_gpus(plan, inputs, wanted);
  hint_at_sequence(plan, inputs, now);
  hint_at_recompute(plan, inputs, now);
  note_what_is_close(plan, inputs, now);
  note_what_waits(plan, inputs);
}

// GPUs that nobody uses are the first thing to know.
void add_idle(Plan& plan, const Situation& situation) {
  auto idle = why_idle(plan, situation);
  if (!idle.empty()) plan.notes.insert(plan.notes.begin(), std::move(idle));
}

}  // namespace

void add_predictions(Plan& plan, const Situation& situation) {
  const auto& [whole, machine, knowledge, wanted] = situation;
  const auto& config = plan.config.config;
  plan.environment = variables_for(config, machine, knowledge.set_variables);
  if (!knowledge.model) {
    if (!knowledge.no_model.empty()) {
      plan.notes.push_back("no prediction: " + knowledge.no_model);
    }
    return add_idle(plan, situation);
  }
  const CostInputs inputs{config, machine, *knowledge.model, knowledge.correction};
  const auto now = predict(inputs, candidate_of(config));
  check_state(inputs, now, plan.candidates);
  if (const auto& why = knowledge.model->assumed_data; !why.empty()) {
    plan.notes.push_back(
        str("the dataset is not here; predicted from the sample shape in the recipe (",
            why, ")"));
  }
  plan.model = knowledge.model->name;
  plan.correction = knowledge.correction;
  constexpr double kPasses = 3;  // backward is two
  plan.flops_per_sample = kPasses * inputs.model.forward_flops();
  plan.peak_flops = peak_flops(inputs, now.candidate.ranks);
  const auto open = reopened(plan);
  plan.scaling =
      predict_scaling({open, machine, inputs.model, inputs.correction}, now.candidate);
  if (const auto steps = total_steps(config, inputs.model)) {
    plan.seconds = *steps * now.time.step();
  }
  plan.prediction = now;
  plan.bottleneck = bottleneck_of(now.time);
  plan.limit_because = memory_limit(inputs, now.candidate).because;
  add_hints(plan, inputs, wanted);
  note_own_passes(plan, inputs);
  mark_taken(plan);
  add_idle(plan, situation);
}

}  // namespace lockstep::planner::detail
