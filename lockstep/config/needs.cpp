#include "lockstep/config/needs.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/config/detail/knobs.h"

namespace lockstep::config {
namespace {

constexpr std::string_view kPeers = "parallel.ranks>1 or comm.backend=modelled";
constexpr std::string_view kScaling = "precision.mode=fp16 and precision.loss_scale=0";
// The condition of knobs for labels, which a task of `auto` has only through its parts.
constexpr std::string_view kLabels =
    "task.criterion=binary_cross_entropy or "
    "task.criterion=auto and task.name=multi_label|multi_task or "
    "task.criterion=auto and task.parts!={}";
// The condition of alerts that look at the machine; others look at metrics.
constexpr std::string_view kAlerts = "monitor.alerts=true and monitor.sample_every>0";

constexpr auto kNeeds = std::to_array<Need>({
    {"model.hidden", "model.name=cnn|gpt|mlp"},
    {"model.layers", "model.name=gpt|mlp"},
    {"model.heads", "model.name=gpt"},
    {"model.dropout", "model.name=cnn|gpt|mlp|resnet9"},
    {"model.own_backward", "model.name=mlp"},
    {"model.file", "model.name=torchscript"},
    {"model.inputs", "model.name=torchscript"},
    {"model.outputs", "model.name=torchscript"},

    {"data.dir", "data.name!=synthetic"},
    {"data.sequence", "data.name=tokens"},
    {"data.token_type", "data.name=tokens"},
    {"data.classes", "data.name=synthetic|tokens"},
    {"data.shape", "data.name=synthetic"},
    {"data.dtype", "data.name=synthetic"},
    {"data.synthetic_samples", "data.name=synthetic"},
    {"data.eval_samples", "train.overfit_batches=0"},

    {"task.label_smoothing", "task.criterion=auto|cross_entropy"},
    {"task.focal_gamma", "task.criterion=focal"},
    {"task.huber_delta", "task.criterion=huber"},
    {"task.ignore_index", "task.criterion=auto|cross_entropy|focal"},
    {"task.positive_weights", kLabels},
    {"task.uncertain", kLabels},
    {"task.parts", "task.name=multi_task|auto"},
    {"task.loss", "task.name=multi_task|auto"},
    {"task.loss_final", "task.name=multi_task|auto and task.loss_ramp_steps>0"},
    {"task.loss_ramp_steps", "task.name=multi_task|auto and task.loss_final!={}"},

    {"optim.base_batch", "optim.lr_scaling!=none"},
    {"optim.no_decay", "optim.weight_decay>0"},
    {"optim.momentum", "optim.name=sgd"},
    {"optim.nesterov", "optim.name=sgd"},
    {"optim.beta1", "optim.name=adamw|adam|lion"},
    {"optim.beta2", "optim.name=adamw|adam|lion"},
    {"optim.eps", "optim.name=adamw|adam"},

    {"schedule.unit", "schedule.name!=constant|plateau"},
    {"schedule.final_ratio", "schedule.name!=constant|sweep"},
    {"schedule.power", "schedule.name=polynomial"},
    {"schedule.step_size", "schedule.name=step"},
    {"schedule.milestones", "schedule.name=multi_step"},
    {"schedule.gamma", "schedule.name=step|multi_step|plateau|exponential"},
    {"schedule.rise", "schedule.name=one_cycle"},
    {"schedule.start_ratio", "schedule.name=one_cycle|sweep"},
    {"schedule.decay_share", "schedule.name=wsd"},
    {"schedule.goal", "schedule.name=plateau"},
    {"schedule.patience", "schedule.name=plateau"},
    {"schedule.threshold", "schedule.name=plateau"},
    {"schedule.cooldown", "schedule.name=plateau"},

    {"ema.decay", "ema.enabled=true"},
    {"ema.warmup", "ema.enabled=true"},
    {"ema.every", "ema.enabled=true"},
    {"ema.evaluate", "ema.enabled=true"},

    {"train.deterministic", "parallel.device=cuda"},
    {"train.graph", "parallel.device=cuda"},
    {"train.max_skipped", "train.on_nonfinite=skip"},

    {"early_stop.min_delta", "early_stop.patience>0 or checkpoint.save_best=true"},

    {"eval.top_k", "eval.metrics=top_k"},

    {"memory.grow_after", "memory.on_out_of_memory=retry"},
    {"memory.fraction", "parallel.device=cuda or memory.find_micro=true"},
    {"memory.target", "memory.find_micro=true"},
    {"memory.empty_cache_every", "parallel.device=cuda"},

    {"precision.loss_scale", "precision.mode=fp16"},
    {"precision.initial_scale", kScaling},
    {"precision.growth_factor", kScaling},
    {"precision.growth_interval", kScaling},
    {"precision.backoff_factor", kScaling},
    {"precision.hysteresis", kScaling},
    {"precision.min_scale", kScaling},

    {"parallel.device_ids", "parallel.device=cuda"},
    {"parallel.zero_stage", "parallel.strategy=zero"},
    {"parallel.bucket_bytes", kPeers},
    {"parallel.bucket_cap_mb", kPeers},
    {"parallel.first_bucket_bytes", kPeers},
    {"parallel.find_unused_parameters", "parallel.strategy!=single"},
    {"parallel.static_graph", kPeers},
    {"parallel.broadcast_buffers", kPeers},
    {"parallel.sync_batch_norm", "parallel.ranks>1"},
    {"parallel.compression", kPeers},
    {"parallel.shard_update", kPeers},
    {"parallel.balance", "parallel.ranks>1"},
    {"parallel.on_setup_failure", "parallel.ranks>1"},

    {"planner.enable_distributed", "planner.policy=flags"},
    {"planner.enable_data_parallel",
     "planner.policy=flags and planner.enable_distributed=false"},

    {"comm.backend", kPeers},
    {"comm.timeout", "parallel.ranks>1"},
    {"comm.join_timeout", "parallel.ranks>1 and comm.backend!=local"},
    {"comm.interface", "parallel.ranks>1 and comm.backend!=local"},
    {"comm.deterministic", kPeers},
    {"comm.debug", "parallel.ranks>1"},
    {"comm.modelled_ranks", "comm.backend=modelled"},
    {"comm.modelled_latency_us", "comm.backend=modelled"},
    {"comm.modelled_bandwidth", "comm.backend=modelled"},
    {"comm.modelled_busy", "comm.backend=modelled and parallel.device=cpu"},

    {"watch.step_factor", "watch.step_floor>0"},
    {"watch.step_timeout", "watch.step_floor>0"},
    {"watch.startup", "watch.step_floor>0"},
    {"watch.first_step", "watch.step_floor>0"},
    {"watch.evaluation", "watch.step_floor>0"},
    {"watch.saving", "watch.step_floor>0"},
    {"watch.loading", "watch.step_floor>0"},
    {"watch.straggler", "parallel.ranks>1"},

    {"checkpoint.allow_missing", "checkpoint.resume!=never or model.weights!="},
    {"checkpoint.ignore", "checkpoint.resume!=never or model.weights!="},

    {"monitor.system_every", "monitor.sample_every>0"},
    {"monitor.prometheus_port", "monitor.sinks=prometheus"},
    {"monitor.prometheus_address",
     "monitor.sinks=prometheus and monitor.prometheus_port>0"},
    {"monitor.prometheus_file", "monitor.sinks=prometheus"},
    {"monitor.dcgm_names", "monitor.sinks=prometheus"},
    {"monitor.wandb_project", "monitor.sinks=wandb"},
    {"monitor.wandb_entity", "monitor.sinks=wandb"},
    {"monitor.wandb_sync_every", "monitor.sinks=wandb"},
    {"monitor.alert_after", "monitor.alerts=true"},
    {"monitor.alert_temperature", kAlerts},
    {"monitor.alert_memory", kAlerts},
    {"monitor.alert_utilization", kAlerts},
    {"monitor.alert_data_wait", "monitor.alerts=true"},
    {"monitor.alert_no_step", kAlerts},
});

std::vector<std::string_view> split_at(std::string_view text, std::string_view word) {
  std::vector<std::string_view> parts;
  for (auto at = text.find(word); at != std::string_view::npos; at = text.find(word)) {
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + word.size());
  }
  parts.push_back(text);
  return parts;
}

// "optim.name", "=", "sgd|lion".
struct Condition {
  std::string_view key, sign, values;
};

Condition condition_of(std::string_view text) {
  const auto at = text.find_first_of("!=>");
  const auto length = text[at] == '!' ? 2U : 1U;
  return {text.substr(0, at), text.substr(at, length), text.substr(at + length)};
}

// Returns the words of a list, or the one that a value is; quotes are the recipe's.
std::vector<std::string> words_of(std::string_view value) {
  std::vector<std::string> words;
  for (const auto& word : text::split(value, ',')) {
    const auto first = word.find_first_not_of("[ \"'");
    const auto last = word.find_last_not_of("] \"'");
    words.push_back(first == std::string::npos || last == std::string::npos
                        ? ""
                        : word.substr(first, last + 1 - first));
  }
  return words;
}

class Judge {
 public:
  explicit Judge(const detail::Knobs& knobs) : knobs_(knobs) {}

  bool holds(std::string_view when) const {
    for (const auto group : split_at(when, " or ")) {
      const auto conditions = split_at(group, " and ");
      if (std::all_of(conditions.begin(), conditions.end(),
                      [this](auto text) { return holds(condition_of(text)); })) {
        return true;
      }
    }
    return false;
  }

  // Returns "optim.name is adamw" for each knob whose condition does not hold.
  std::string as_it_is(std::string_view when) const {
    std::vector<std::string> parts;
    for (const auto group : split_at(when, " or ")) {
      for (const auto text : split_at(group, " and ")) {
        const auto condition = condition_of(text);
        if (holds(condition)) continue;
        auto part = str(condition.key, " is ", value_of(condition.key));
        const bool is_said = std::find(parts.begin(), parts.end(), part) != parts.end();
        if (!is_said) parts.push_back(std::move(part));
      }
    }
    return text::join(parts, " and ");
  }

  std::string value_of(std::string_view key) const {
    return knobs_.find(key)->write().yaml;
  }

 private:
  bool holds(const Condition& condition) const {
    const auto value = value_of(condition.key);
    if (condition.sign == ">") {
      // strtod() takes the number of "25MiB" and "30s".
      return std::strtod(value.c_str(), nullptr) >
             text::to_double(condition.values).value();
    }
    const auto words = words_of(value);
    const auto wanted = text::split(condition.values, '|');
    const bool found = std::find_first_of(words.begin(), words.end(), wanted.begin(),
                                          wanted.end()) != words.end();
    return found == (condition.sign == "=");
  }

  const detail::Knobs& knobs_;
};

bool was_set(const Source& source) {
  return source.origin != Origin::standard && source.origin != Origin::planner;
}

// Returns whether a recipe names every knob; those of its `auto` are the planner's now.
bool names_all(const Loaded& loaded) {
  return std::none_of(
      loaded.sources.begin(), loaded.sources.end(),
      [](const auto& entry) { return entry.second.origin == Origin::standard; });
}

}  // namespace

std::span<const Need> needs() {
  return kNeeds;
}

std::vector<std::string> unused_knobs(const Loaded& resolved) {
  auto copy = resolved.config;
  Config standard;
  const auto knobs = detail::knobs_of(copy), defaults = detail::knobs_of(standard);
  const Judge judge(knobs), before(defaults);
  const bool is_complete = names_all(resolved);
  std::vector<std::string> lines;
  for (const auto& need : kNeeds) {
    const auto source = resolved.sources.find(std::string(need.key));
    if (source == resolved.sources.end() || !was_set(source->second)) continue;
    const auto value = judge.value_of(need.key);
    if (is_complete && value == before.value_of(need.key)) continue;
    if (judge.holds(need.when)) continue;
    const auto place =
        source->second.origin == Origin::override_ ? "" : place_of(source->second);
    lines.push_back(str(place, place.empty() ? "" : ": ", need.key, "=", value,
                        " is not used: it needs ", need.when, ", and ",
                        judge.as_it_is(need.when)));
  }
  return lines;
}

}  // namespace lockstep::config
