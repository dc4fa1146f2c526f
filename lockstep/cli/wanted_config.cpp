// Turns the options of `train` into knobs.
#include <algorithm>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/detail/train.h"

namespace lockstep::cli {
namespace {

using Overrides = std::vector<config::Override>;

// A value of an override is YAML; a path may hold anything. Between single quotes a
// line break would be a space, so that a path with one becomes another.
std::string quoted(const std::string& text) {
  const bool plain = std::none_of(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; });
  std::string result(1, plain ? '\'' : '"');
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    constexpr std::string_view kDigits = "0123456789abcdef";
    if (plain) {
      result += c == '\'' ? "''" : std::string(1, c);
    } else if (code < 0x20 || code == 0x7F) {
      result += str("\\x", kDigits[code >> 4], kDigits[code & 15]);
    } else {
      result += c == '"' || c == '\\' ? str("\\", c) : std::string(1, c);
    }
  }
  return result + result.front();
}

void add_devices(const Arguments& arguments, Overrides& knobs) {
  const auto ranks = arguments.number("--ranks", 1);
  const auto gpus = arguments.number("--num-gpus", 0);
  if (ranks && gpus) {
    throw Error(Fault::config,
                "--ranks and --num-gpus both say how many ranks there are; "
                "give one of them");
  }
  if (ranks) knobs.push_back({"parallel.ranks", str(*ranks)});
  if (!gpus) return;
  knobs.push_back({"parallel.ranks", str(std::max(1LL, *gpus))});
  knobs.push_back({"parallel.device", *gpus == 0 ? "cpu" : "cuda"});
}

void add_run_directory(const Arguments& arguments, Overrides& knobs) {
  const auto given = arguments.value("--run-dir");
  if (!given) return;
  // "x/" and "x/." name the directory x.
  auto path = std::filesystem::path(*given).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  const auto name = path.filename().string();
  if (name.empty() || name == "." || name == "..") {
    throw Error(Fault::config, "--run-dir: '", *given,
                "' is not a new directory; name one that does not exist yet");
  }
  const auto parent = path.parent_path().string();
  knobs.push_back({"run.dir", quoted(parent.empty() ? "." : parent)});
  knobs.push_back({"run.name", quoted(name)});
}

void add_verbosity(const Arguments& arguments, Overrides& knobs) {
  if (arguments.has("--quiet") && arguments.has("--verbose")) {
    throw Error(Fault::config, "--quiet and --verbose contradict each other");
  }
  if (arguments.has("--quiet")) knobs.push_back({"monitor.verbosity", "quiet"});
  if (arguments.has("--verbose")) knobs.push_back({"monitor.verbosity", "debug"});
}

// Adds the short names of the knobs that users change most.
void add_training(const Arguments& arguments, Overrides& knobs) {
  for (const auto& [option, key] :
       {std::pair("--epochs", "train.epochs"), std::pair("--batch", "batch.global"),
        std::pair("--lr", "optim.lr"), std::pair("--max-time", "train.max_time")}) {
    if (const auto value = arguments.value(option)) knobs.push_back({key, *value});
  }
  if (const auto steps = arguments.value("--profile")) {
    constexpr std::string_view kPrefix = "steps=";
    const bool named = text::starts_with(*steps, kPrefix);
    knobs.push_back(
        {"profile.steps", quoted(named ? steps->substr(kPrefix.size()) : *steps)});
  }
  if (arguments.has("--amp")) knobs.push_back({"precision.mode", "bf16"});
  if (arguments.has("--ema")) knobs.push_back({"ema.enabled", "true"});
  if (arguments.has("--dcgm-names")) knobs.push_back({"monitor.dcgm_names", "true"});
}

Overrides knobs_of_options(const Arguments& arguments) {
  Overrides knobs;
  add_devices(arguments, knobs);
  add_training(arguments, knobs);
  add_run_directory(arguments, knobs);
  add_verbosity(arguments, knobs);
  for (const auto& [option, key] :
       {std::pair("--resume", "checkpoint.resume"),
        std::pair("--allow-missing", "checkpoint.allow_missing"),
        std::pair("--ignore", "checkpoint.ignore")}) {
    if (const auto value = arguments.value(option)) {
      knobs.push_back({key, quoted(*value)});
    }
  }
  return knobs;
}

Overrides all_overrides(const Arguments& arguments) {
  auto knobs = knobs_of_options(arguments);
  const auto typed = arguments.overrides();
  for (const auto& knob : knobs) {
    for (const auto& other : typed) {
      if (other.key != knob.key) continue;
      throw Error(Fault::config, knob.key, " is set twice: by an option (", knob.value,
                  ") and by ", other.key, "=", other.value, "; leave one out");
    }
  }
  knobs.insert(knobs.end(), typed.begin(), typed.end());
  return knobs;
}

// Returns whether the user set one of these knobs for this very run.
bool typed_any(const config::Loaded& loaded,
               std::initializer_list<std::string_view> keys) {
  return std::any_of(keys.begin(), keys.end(), [&](std::string_view key) {
    const auto source = loaded.sources.find(std::string(key));
    return source != loaded.sources.end() &&
           source->second.origin == config::Origin::override_;
  });
}

void set_for_debug(config::Loaded& loaded, std::string_view key,
                   const std::string& value) {
  if (typed_any(loaded, {key})) return;
  config::set(loaded, {std::string(key), std::string(value)},
              {config::Origin::override_, "--debug"});
}

void debug_batch(config::Loaded& loaded) {
  constexpr std::int64_t kSmall = 8;
  if (typed_any(loaded, {"batch.global", "batch.per_rank", "batch.accumulation",
                         "batch.micro"})) {
    return;
  }
  const auto& batch = loaded.config.batch;
  const auto global =
      batch.global.is_auto() ? kSmall : std::min(kSmall, batch.global.value());
  for (const auto* key : {"batch.per_rank", "batch.accumulation", "batch.micro"}) {
    set_for_debug(loaded, key, "auto");
  }
  set_for_debug(loaded, "batch.global", str(global));
}

// Drops schedule settings that lie beyond the end of so short a run.
void debug_schedule(config::Loaded& loaded) {
  set_for_debug(loaded, "schedule.warmup_steps", "0");
  set_for_debug(loaded, "schedule.warmup_epochs", "0");
  const auto name = loaded.config.schedule.name;
  if (name != config::Schedule::step && name != config::Schedule::multi_step) return;
  set_for_debug(loaded, "schedule.name", "constant");
  set_for_debug(loaded, "schedule.milestones", "[]");
}

void apply_debug(config::Loaded& loaded) {
  if (!typed_any(loaded, {"train.steps", "train.epochs"})) {
    set_for_debug(loaded, "train.epochs", "auto");
    set_for_debug(loaded, "train.steps", "5");
  }
  debug_schedule(loaded);
  debug_batch(loaded);
  if (loaded.config.data.eval_samples == 0) {
    set_for_debug(loaded, "data.eval_samples", "256");
  }
  set_for_debug(loaded, "data.workers", "1");
  set_for_debug(loaded, "train.log_every", "1");
  set_for_debug(loaded, "train.anomaly", "true");
  set_for_debug(loaded, "monitor.verbosity", "debug");
  config::validate(loaded);
}

}  // namespace

config::Loaded wanted_config(const Arguments& arguments, const Context& context) {
  auto loaded = config::load(arguments.operand("RECIPE").value_or(""),
                             all_overrides(arguments), context.environment);
  if (arguments.has("--debug")) apply_debug(loaded);
  return loaded;
}

}  // namespace lockstep::cli
