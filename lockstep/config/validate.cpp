// Knobs that do not fit together, and features that this version does not have. A knob
// that does not fit the machine is the planner's business.
#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

#include "lockstep/base/str.h"
#include "lockstep/config/decisions.h"
#include "lockstep/config/detail/checker.h"
#include "lockstep/config/load.h"

namespace lockstep::config {
namespace {

using detail::Checker;
using detail::count_of;

void check_run(Checker& check, const RunConfig& run) {
  constexpr std::size_t kLongestName = 100;
  if (run.dir.empty())
    check.refuse("run.dir", "is empty; name a folder, for example runs");
  if (run.name.find('/') != std::string::npos) {
    check.refuse("run.name", str("'", run.name,
                                 "' is not a plain name; the folder goes to "
                                 "run.dir"));
  } else if (!run.name.empty() && run.name[0] == '.') {
    check.refuse("run.name",
                 str("'", run.name, "' would be hidden; drop the leading dot"));
  }
  if (run.name.size() > kLongestName) {
    check.refuse("run.name", str("has ", run.name.size(), " bytes; at most ",
                                 kLongestName, " are allowed"));
  }
}

// Names of tensors, which a script takes and gives by their order.
void check_names(Checker& check, const std::string& key,
                 const std::vector<std::string>& names) {
  if (names.empty()) {
    check.refuse(key, "is empty; name each tensor, in its order");
  }
  for (auto name = names.begin(); name != names.end(); ++name) {
    if (std::find(names.begin(), name, *name) == name) continue;
    check.refuse(key, str("'", *name, "' appears twice; each tensor has its own name"));
    return;
  }
}

void check_model(Checker& check, const ModelConfig& model) {
  if (model.name != "torchscript") return;
  if (model.file.empty()) {
    check.refuse("model.file",
                 "is empty, but model.name is torchscript; name the file that "
                 "torch.jit.save has written");
  }
  check_names(check, "model.inputs", model.inputs);
  check_names(check, "model.outputs", model.outputs);
}

void check_context(Checker& check, const Config& config) {
  const auto& [model, data] = std::tie(config.model, config.data);
  const bool is_short = model.context > 0 && model.context < data.sequence;
  const bool has_sequence = data.name == "tokens" || data.name == "text";
  if (model.name != "gpt" || !has_sequence || !is_short) return;
  check.refuse("model.context",
               str(model.context, " positions, but a sample has ", data.sequence,
                   " tokens (data.sequence); raise one or lower the other"));
}

void check_tokenizer(Checker& check, const Config& config) {
  const bool has_one =
      !config.data.text.tokenizer.empty() || !config.model.weights.empty();
  if (config.data.name != "text" || has_one) return;
  check.refuse("data.tokenizer",
               "is empty; name the folder of a tokenizer: `lockstep tokenizer train` "
               "makes one, scripts/get_gpt2_vocab.sh has GPT-2's");
}

void check_source(Checker& check, const DataConfig& data) {
  const auto at = std::find(kDatasets.begin(), kDatasets.end(), data.name);
  const auto number = static_cast<std::size_t>(at - kDatasets.begin());
  const bool has_place =
      at == kDatasets.end() || kDataPlaces[number] != DataPlace::folder;
  if (!has_place && data.dir.empty()) {
    check.refuse(
        "data.name",
        str(data.name, " has no usual place; set data.dir to the folder of its files"));
  }
  if (data.name == "synthetic" && data.shape.empty()) {
    check.refuse("data.name",
                 "synthetic has no shape of its own; set data.shape, for example to "
                 "[3, 224, 224]");
  }
}

void check_data(Checker& check, const DataConfig& data) {
  check_source(check, data);
  if (data.mean.size() != data.std.size()) {
    check.refuse("data.mean",
                 str(data.mean.size(), " values, but data.std has ", data.std.size(),
                     "; they go together: write as many of one as of the other"));
  }
  if (data.weighted_sampling && !data.shuffle) {
    check.refuse("data.weighted_sampling",
                 "true, but data.shuffle is false; it is a way to shuffle: set "
                 "data.shuffle=true");
  }
  if (data.balanced_loss && !data.class_weights.empty()) {
    check.refuse("data.balanced_loss",
                 "true, but data.class_weights is given, too; drop one of them");
  }
  double sum = 0;
  for (const auto weight : data.class_weights) sum += weight;
  if (!data.class_weights.empty() && sum <= 0) {
    check.refuse("data.class_weights",
                 "are all 0: nothing would be learned; give a class a weight above 0");
  }
}

void check_optim(Checker& check, const OptimConfig& optim) {
  if (!optim.nesterov) return;
  if (optim.name != Optimizer::sgd) {
    check.refuse("optim.nesterov",
                 str("true, but optim.name is ", name_of(optim.name),
                     "; Nesterov's form is "
                     "sgd's: set optim.name=sgd or optim.nesterov=false"));
  } else if (optim.momentum == 0) {
    check.refuse("optim.nesterov",
                 "true, but optim.momentum is 0; set optim.momentum above "
                 "0 or optim.nesterov=false");
  }
}

void check_milestones(Checker& check, const ScheduleConfig& schedule) {
  const auto& milestones = schedule.milestones;
  if (schedule.name != Schedule::multi_step && !milestones.empty()) {
    check.refuse("schedule.milestones",
                 str("are multi_step's, but schedule.name is ", name_of(schedule.name),
                     "; set schedule.name=multi_step or leave them out"));
  } else if (schedule.name == Schedule::multi_step && milestones.empty()) {
    check.refuse("schedule.milestones",
                 "is empty, but schedule.name is multi_step; name the steps or epochs "
                 "of the drops, for example [30, 60]");
  }
  for (std::size_t i = 1; i < milestones.size(); ++i) {
    if (milestones[i] > milestones[i - 1]) continue;
    check.refuse("schedule.milestones",
                 str(milestones[i], " stands after ", milestones[i - 1],
                     "; write them in rising order"));
    return;
  }
}

void check_schedule(Checker& check, const ScheduleConfig& schedule) {
  check_milestones(check, schedule);
  if (schedule.name == Schedule::step && schedule.step_size == 0) {
    check.refuse("schedule.step_size",
                 "0, but schedule.name is step; set the steps or epochs between drops");
  }
  if (schedule.name == Schedule::sweep && schedule.start_ratio == 0) {
    check.refuse("schedule.start_ratio",
                 "0, but schedule.name is sweep, which multiplies it up to 1; set it "
                 "above 0, for example to 1e-8");
  }
  if (schedule.warmup_steps > 0 && schedule.warmup_epochs > 0) {
    check.refuse("schedule.warmup_epochs",
                 str(schedule.warmup_epochs, ", but schedule.warmup_steps is ",
                     schedule.warmup_steps, ", too; leave one out"));
  }
}

void check_length(Checker& check, const Config& config) {
  const auto steps = count_of(config.train.steps);
  const auto epochs = count_of(config.train.epochs);
  if (steps.value_or(0) > 0 && epochs.value_or(0) > 0) {
    check.refuse("train.steps", str(*steps, ", but train.epochs is ", *epochs,
                                    ", too; leave one out, or set train.epochs=auto"));
  }
  if (epochs == 0 && steps.value_or(0) == 0) {
    check.refuse("train.epochs",
                 "0, and train.steps is not set: there is nothing to train; set one of "
                 "them");
  }
  const auto warmup = config.schedule.warmup_steps;
  if (steps.value_or(0) > 0 && warmup > *steps) {
    check.refuse(
        "schedule.warmup_steps",
        str(warmup, " is more than train.steps=", *steps, "; choose at most ", *steps));
  }
}

void check_zero(Checker& check, const ParallelConfig& parallel) {
  if (parallel.strategy != Strategy::zero) return;
  if (!parallel.gradient_as_bucket_view) {
    check.refuse(
        "parallel.gradient_as_bucket_view",
        "false keeps full gradients, but with parallel.strategy=zero each rank has "
        "sums of its shard only; leave it true, or set parallel.strategy=ddp");
  }
  if (parallel.shard_update == ShardUpdate::off) {
    check.refuse("parallel.shard_update",
                 "off, but sharding the update is what parallel.strategy=zero does; "
                 "leave it auto, or set parallel.strategy=ddp");
  }
  if (parallel.shard_group.is_auto() || parallel.ranks.is_auto()) return;
  const auto lack =
      lack_of_shard_group(parallel.shard_group.value(), parallel.ranks.value());
  if (!lack.empty()) check.refuse("parallel.shard_group", lack);
}

void check_strategy(Checker& check, const ParallelConfig& parallel) {
  const auto ranks = count_of(parallel.ranks).value_or(1);
  if (parallel.strategy == Strategy::single && ranks > 1) {
    check.refuse("parallel.strategy",
                 str("single, but parallel.ranks is ", ranks,
                     "; set parallel.strategy=ddp or parallel.ranks=1"));
  }
  if (parallel.balance && parallel.sync_batch_norm) {
    check.refuse("parallel.balance",
                 "true, but with parallel.sync_batch_norm ranks wait for each other in "
                 "every layer, so none looks faster; switch one of them off");
  }
  if (parallel.shard_update == ShardUpdate::on && !parallel.gradient_as_bucket_view) {
    check.refuse("parallel.shard_update",
                 "on, so that only a rank's shard of the gradients is summed, but "
                 "parallel.gradient_as_bucket_view=false keeps full ones; switch one "
                 "of them off");
  }
  check_zero(check, parallel);
  const auto ids = static_cast<std::int64_t>(parallel.device_ids.size());
  if (ids == 0) return;
  if (parallel.strategy != Strategy::data_parallel) {
    check.refuse("parallel.device_ids",
                 str("names ", ids, " devices, but parallel.strategy is ",
                     name_of(parallel.strategy),
                     ", which gives rank k the k-th GPU; set "
                     "parallel.strategy=data_parallel, or CUDA_VISIBLE_DEVICES"));
  } else if (!parallel.ranks.is_auto() && ids != ranks) {
    check.refuse("parallel.device_ids",
                 str("names ", ids, " devices, but parallel.ranks is ", ranks,
                     "; leave parallel.ranks auto"));
  }
}

void check_buckets(Checker& check, const ParallelConfig& parallel) {
  if (parallel.bucket_bytes.is_auto() || parallel.bucket_cap_mb.is_auto()) return;
  const auto bytes = parallel.bucket_bytes.value();
  const auto cap = parallel.bucket_cap_mb.value();
  if (std::abs(static_cast<double>(bytes) - cap * kMebibyte) < 1) return;
  check.refuse("parallel.bucket_cap_mb",
               str(cap, " MiB is ", static_cast<std::int64_t>(cap * kMebibyte),
                   " bytes, but parallel.bucket_bytes is ", bytes,
                   "; they are one knob: name one of them"));
}

void check_comm(Checker& check, const Config& config) {
  const auto& comm = config.comm;
  const auto strategy = config.parallel.strategy;
  const bool local = comm.backend == CommBackend::local;
  if (local && strategy != Strategy::data_parallel) {
    check.refuse("comm.backend",
                 str("local is for ranks that are threads of one process, but "
                     "parallel.strategy is ",
                     name_of(strategy), "; set parallel.strategy=data_parallel"));
  }
  if (strategy == Strategy::data_parallel && !local &&
      comm.backend != CommBackend::automatic) {
    check.refuse(
        "comm.backend",
        str(name_of(comm.backend),
            " is for processes, but with parallel.strategy=data_parallel ranks "
            "are threads of one; set comm.backend=auto"));
  }
  for (const auto& [key, value] : {std::pair{"comm.timeout", comm.timeout},
                                   std::pair{"comm.join_timeout", comm.join_timeout}}) {
    if (value.count() > 0) continue;
    check.refuse(key, "0 would give up at once; set a time above zero");
  }
}

void check_early_stop(Checker& check, const EarlyStopConfig& early_stop) {
  const auto ratio = early_stop.divergence;
  if (ratio == 0 || ratio > 1) return;
  check.refuse("early_stop.divergence",
               str(ratio,
                   " times the minimum loss is no more than the minimum, so that "
                   "training would stop at once; set it above 1, for example to 4"));
}

void check_profile(Checker& check, const Config& config) {
  const auto& text = config.profile.steps;
  if (text.empty()) return;
  const auto range = parse_step_range(text);
  if (!range) {
    check.refuse("profile.steps",
                 str("'", text, "' is not first:last, counted from 1, with at most ",
                     kMostProfiledSteps, " steps; write for example 10:20"));
    return;
  }
  const auto steps = config.train.steps.value_or(0);
  if (steps == 0 || range->last <= steps) return;
  check.refuse("profile.steps",
               str("step ", range->last, " is to be timed, but train.steps is ", steps,
                   "; end the range at ", steps, " or train longer"));
}

// A knob of a policy that is not asked would do nothing.
void check_planner(Checker& check, const PlannerConfig& planner) {
  if (planner.policy == Policy::flags) return;
  for (const auto& [key, value] :
       {std::pair{"planner.enable_distributed", planner.enable_distributed},
        std::pair{"planner.enable_data_parallel", planner.enable_data_parallel}}) {
    if (value) continue;
    check.refuse(key, str("false is for the policy flags, but planner.policy is ",
                          name_of(planner.policy),
                          "; set planner.policy=flags, or name parallel.strategy"));
  }
}

void check_resume(Checker& check, const Config& config) {
  if (config.checkpoint.resume.empty()) {
    check.refuse("checkpoint.resume", "is empty; set it to auto, never or a path");
  }
}

// A knob of a sink that is not there would do nothing.
void check_monitor(Checker& check, const MonitorConfig& monitor) {
  const auto has = [&](Sink sink) {
    return std::find(monitor.sinks.begin(), monitor.sinks.end(), sink) !=
           monitor.sinks.end();
  };
  const auto needs = [&](bool is_set, Sink sink, const std::string& key) {
    if (!is_set || has(sink)) return;
    check.refuse(key, str("is a knob of the ", name_of(sink),
                          " sink, which monitor.sinks "
                          "does not have; add it there"));
  };
  needs(monitor.prometheus_port != 0, Sink::prometheus, "monitor.prometheus_port");
  needs(!monitor.prometheus_file.empty(), Sink::prometheus, "monitor.prometheus_file");
  needs(monitor.dcgm_names, Sink::prometheus, "monitor.dcgm_names");
  needs(!monitor.wandb_entity.empty(), Sink::wandb, "monitor.wandb_entity");
  needs(monitor.wandb_sync_every != MonitorConfig().wandb_sync_every, Sink::wandb,
        "monitor.wandb_sync_every");
  needs(!monitor.mlflow_uri.empty(), Sink::mlflow, "monitor.mlflow_uri");
  needs(monitor.mlflow_experiment != MonitorConfig().mlflow_experiment, Sink::mlflow,
        "monitor.mlflow_experiment");
  needs(monitor.mlflow_sync_every != MonitorConfig().mlflow_sync_every, Sink::mlflow,
        "monitor.mlflow_sync_every");
  if (monitor.mlflow_experiment.empty()) {
    check.refuse("monitor.mlflow_experiment", "is empty; name one, such as lockstep");
  }
  if (monitor.wandb_project.empty()) {
    check.refuse("monitor.wandb_project", "is empty; name a project, such as lockstep");
  }
}

}  // namespace

void validate(const Loaded& loaded) {
  Checker check(loaded);
  check_run(check, loaded.config.run);
  check_model(check, loaded.config.model);
  check_data(check, loaded.config.data);
  check_context(check, loaded.config);
  check_tokenizer(check, loaded.config);
  detail::check_task(check, loaded.config.task);
  detail::check_batch(check, loaded.config);
  check_optim(check, loaded.config.optim);
  check_schedule(check, loaded.config.schedule);
  check_length(check, loaded.config);
  check_strategy(check, loaded.config.parallel);
  check_buckets(check, loaded.config.parallel);
  check_comm(check, loaded.config);
  check_early_stop(check, loaded.config.early_stop);
  check_profile(check, loaded.config);
  check_monitor(check, loaded.config.monitor);
  check_planner(check, loaded.config.planner);
  check_resume(check, loaded.config);
  check.finish();
}

}  // namespace lockstep::config
