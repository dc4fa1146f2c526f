// What is printed loads back to what was printed.
#include "lockstep/config/print.h"

#include <cmath>
#include <map>

#include <nlohmann/json.hpp>

#include "tests/config/recipe_file.h"

using ::testing::HasSubstr;

namespace lockstep::test {
namespace {

// For every key a value that is not its default and that no other value contradicts.
const std::vector<config::Override>& unusual_values() {
  static const std::vector<config::Override> kValues = {
      {"run.dir", "\"my runs: # 1, \\\"x\\\" \\\\ é\""},
      {"run.name", "0001"},
      {"run.tags", "[baseline, \"a b\"]"},
      {"run.seed", "18446744073709551615"},
      {"model.name", "mlp"},
      {"model.size", "gpt2-xl"},  // of the gpt only
      {"model.hidden", "300"},
      {"model.layers", "7"},
      {"model.heads", "3"},
      {"model.context", "2048"},
      {"model.pad_vocabulary", "64"},
      {"model.dropout", "0.1"},
      {"model.own_backward", "true"},
      {"model.weights", "first.safetensors"},
      {"model.file", "model.pt"},
      {"model.inputs", "[scan, \"a b\"]"},
      {"model.outputs", "[organ]"},
      {"models.dir", "/models"},
      {"lora.rank", "8"},
      {"lora.alpha", "32"},
      {"lora.dropout", "0.05"},
      {"lora.targets", "*.c_fc"},
      {"lora.weights", "adapters"},
      {"data.name", "idx"},
      {"data.dir", "/null"},
      {"data.shuffle", "no"},
      {"data.train_samples", "1000"},
      {"data.eval_samples", "99999999999"},
      {"data.split", "0.1"},
      {"data.drop_last", "on"},
      {"data.weighted_sampling", "off"},  // needs data.shuffle
      {"data.class_weights", "[0.1, 2, 5e-324]"},
      {"data.balanced_loss", "off"},  // contradicts data.class_weights
      {"data.on_bad_sample", "skip"},
      {"data.resize", "224"},
      {"data.mean", "[0.1, -2]"},
      {"data.std", "0.3, 1e-3"},
      {"data.sequence", "77"},
      {"data.token_type", "uint32"},
      {"data.classes", "50257"},
      {"data.tokenizer", "words"},
      {"data.pack", "false"},
      {"data.loss_on", "all"},
      {"data.chat_template", "<{role}>{content}"},
      {"data.input", "age, city"},
      {"data.target", "outcome"},
      {"data.weight", "counts"},
      {"data.columns", "{rooms: category}"},
      {"data.standardize", "false"},
      {"data.shape", "[3, 32, 32]"},
      {"data.dtype", "float32"},
      {"data.synthetic_samples", "3"},
      {"data.workers", "3"},
      {"data.prefetch", "1024"},
      {"data.pin_memory", "true"},
      {"augment.crop_padding", "4"},
      {"augment.flip", "0.5"},
      {"augment.cutout", "8"},
      {"augment.erase", "0.25"},
      {"augment.mixup", "0.2"},
      {"augment.cutmix", "1"},
      {"task.name", "multi_task"},
      {"task.criterion", "cross_entropy"},
      {"task.primary", "b_auroc"},
      {"task.label_smoothing", "0.1"},
      {"task.focal_gamma", "0.5"},
      {"task.huber_delta", "0.25"},
      {"task.ignore_index", "-1"},
      {"task.positive_weights", "[1, 0.30000000000000004]"},
      {"task.uncertain", "one"},
      {"task.parts", "{b: multi_label, \"null\": regression}"},
      {"task.loss", "{b: 5e-324}"},
      {"task.loss_final", "{b: 0.30000000000000004, \"null\": 0}"},
      {"task.loss_ramp_steps", "100"},
      {"batch.global", "48"},
      {"batch.per_rank", "48"},
      {"batch.accumulation", "3"},
      {"batch.micro", "16"},
      {"batch.eval", "1"},
      {"optim.name", "sgd"},
      {"optim.lr", "0.30000000000000004"},
      {"optim.lr_scaling", "sqrt"},
      {"optim.base_batch", "1024"},
      {"optim.layer_decay", "0.75"},
      {"optim.weight_decay", "5e-324"},
      {"optim.no_decay", "*.bias, norm.*"},
      {"optim.momentum", "0.99999999999999989"},
      {"optim.nesterov", "on"},
      {"optim.beta1", "0.1"},
      {"optim.beta2", "2.2250738585072014e-308"},
      {"optim.eps", "1.7976931348623157e308"},
      {"optim.clip_norm", "1"},
      {"optim.clip_value", "0.5"},
      {"schedule.name", "multi_step"},
      {"schedule.unit", "epoch"},
      {"schedule.warmup_steps", "5"},
      {"schedule.warmup_epochs", "0"},  // one of the two
      {"schedule.final_ratio", "0.3333333333333333"},
      {"schedule.power", "2.5"},
      {"schedule.step_size", "7"},
      {"schedule.milestones", "[3, 2000000000]"},
      {"schedule.gamma", "0.25"},
      {"schedule.rise", "0.125"},
      {"schedule.start_ratio", "0"},
      {"schedule.decay_share", "1"},
      {"schedule.goal", "max"},
      {"schedule.patience", "0"},
      {"schedule.threshold", "0.0625"},
      {"schedule.cooldown", "3"},
      {"ema.enabled", "on"},
      {"ema.decay", "0.9999"},
      {"ema.warmup", "off"},
      {"ema.every", "10"},
      {"ema.evaluate", "off"},
      {"train.steps", "1e11"},
      {"train.epochs", "0"},
      {"train.max_time", "1.234s"},
      {"train.limit_train_batches", "10"},
      {"train.limit_eval_batches", "11"},
      {"train.log_every", "1"},
      {"train.metrics", "off"},
      {"train.anomaly", "true"},
      {"train.deterministic", "true"},
      {"train.graph", "on"},
      {"train.on_nonfinite", "skip"},
      {"train.max_skipped", "0"},
      {"train.fast_dev_run", "3"},
      {"train.overfit_batches", "4"},
      {"eval.every", "epoch"},
      {"eval.metrics", "[f1, auroc]"},
      {"eval.top_k", "3"},
      {"eval.sanity_batches", "2"},
      {"eval.prompts", "[Once, \"In the\"]"},
      {"eval.prompt_tokens", "16"},
      {"early_stop.patience", "7"},
      {"early_stop.metric", "accuracy"},
      {"early_stop.min_delta", "1e-3"},
      {"early_stop.mode", "max"},
      {"early_stop.divergence", "4.5"},
      {"memory.recompute_every", "2"},
      {"memory.on_out_of_memory", "stop"},
      {"memory.grow_after", "100"},
      {"memory.fraction", "0.5"},
      {"memory.find_micro", "true"},
      {"memory.target", "0.6"},
      {"memory.offload", "true"},
      {"memory.empty_cache_every", "10"},
      {"memory.host_limit", "1GiB"},
      {"precision.mode", "bf16"},
      {"precision.loss_scale", "128"},
      {"precision.initial_scale", "1024"},
      {"precision.growth_factor", "4"},
      {"precision.growth_interval", "100"},
      {"precision.backoff_factor", "0.25"},
      {"precision.hysteresis", "2"},
      {"precision.min_scale", "0.5"},
      {"parallel.strategy", "single"},
      {"parallel.ranks", "1"},
      {"parallel.device_ids", "[]"},
      {"parallel.zero_stage", "3"},
      {"parallel.shard_group", "2"},
      {"parallel.live_buckets", "3"},
      {"parallel.prefetch_units", "2"},
      {"parallel.persist_below", "1001"},
      {"parallel.reshard_after_forward", "off"},
      {"parallel.bucket_bytes", "1000001"},
      {"parallel.bucket_cap_mb", "auto"},  // they are one knob
      {"parallel.first_bucket_bytes", "1001"},
      {"parallel.gradient_as_bucket_view", "off"},
      {"parallel.find_unused_parameters", "on"},
      {"parallel.static_graph", "on"},
      {"parallel.broadcast_buffers", "off"},
      {"parallel.sync_batch_norm", "on"},
      {"parallel.compression", "bf16"},
      {"parallel.shard_update", "off"},
      {"parallel.balance", "off"},
      {"parallel.device", "cuda"},
      {"parallel.threads", "2"},
      {"parallel.on_setup_failure", "single"},
      {"planner.policy", "flags"},
      {"planner.learn", "never"},
      {"planner.enable_distributed", "off"},
      {"planner.enable_data_parallel", "off"},
      {"comm.backend", "shm"},
      {"comm.timeout", "1.5s"},
      {"comm.join_timeout", "7s"},
      {"comm.interface", "eth0"},
      {"comm.deterministic", "true"},
      {"comm.debug", "true"},
      {"comm.modelled_ranks", "64"},
      {"comm.modelled_latency_us", "2.5"},
      {"comm.modelled_bandwidth", "1000003"},
      {"comm.modelled_busy", "true"},
      {"watch.step_floor", "0s"},
      {"watch.step_factor", "2.5"},
      {"watch.step_timeout", "20min"},
      {"watch.startup", "1s"},
      {"watch.first_step", "2s"},
      {"watch.evaluation", "3s"},
      {"watch.saving", "4s"},
      {"watch.loading", "5s"},
      {"watch.straggler", "0.25"},
      {"checkpoint.every", "100"},
      {"checkpoint.interval", "5m"},
      {"checkpoint.keep", "1"},
      {"checkpoint.keep_best", "2"},
      {"checkpoint.keep_every", "1000"},
      {"checkpoint.on_failure", "stop"},
      {"checkpoint.on_busy", "skip"},
      {"checkpoint.load_best", "true"},
      {"checkpoint.allow_missing", "model.head.*"},
      {"checkpoint.ignore", "optimizer.*"},
      {"checkpoint.resume", "never"},
      {"checkpoint.save_last", "off"},
      {"checkpoint.final_weights", "off"},
      {"checkpoint.save_best", "true"},
      {"monitor.sinks", "[wandb, prometheus, mlflow]"},
      {"monitor.verbosity", "debug"},
      {"monitor.sample_every", "250ms"},
      {"monitor.system_every", "7s"},
      {"monitor.prometheus_port", "9400"},
      {"monitor.prometheus_address", "0.0.0.0"},
      {"monitor.prometheus_file", "/tmp/lockstep.prom"},
      {"monitor.dcgm_names", "true"},
      {"monitor.wandb_project", "mine"},
      {"monitor.wandb_entity", "us"},
      {"monitor.wandb_sync_every", "90s"},
      {"monitor.mlflow_uri", "http://127.0.0.1:5000"},
      {"monitor.mlflow_experiment", "mine"},
      {"monitor.mlflow_sync_every", "1s"},
      {"monitor.alerts", "false"},
      {"monitor.alert_after", "3s"},
      {"monitor.alert_temperature", "70.5"},
      {"monitor.alert_memory", "0.5"},
      {"monitor.alert_utilization", "0.75"},
      {"monitor.alert_data_wait", "0.125"},
      {"monitor.alert_no_step", "1h"},
      {"profile.steps", "3:7"},
  };
  return kValues;
}

}  // namespace

TEST(Print, EveryKeyHasAnUnusualValueInThisTest) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : unusual_values()) keys.push_back(key);
  EXPECT_EQ(keys, config::keys());
}

TEST(Print, YamlLoadsBackToTheSameValues) {
  const auto before = config::defaults(unusual_values(), {});
  for (const bool with_sources : {false, true}) {
    const auto after = RecipeFile(config::to_yaml(before, with_sources)).load();
    for (const auto& [key, value] : unusual_values()) {
      EXPECT_EQ(config::get(after, key), config::get(before, key));
      EXPECT_EQ(after.sources.at(key).origin, config::Origin::recipe) << key;
    }
    EXPECT_EQ(config::to_yaml(after, false), config::to_yaml(before, false));
  }
}

TEST(Print, DoublesKeepTheirBits) {
  const auto before = config::defaults(unusual_values(), {});
  const auto after = RecipeFile(config::to_yaml(before, false)).load().config;
  EXPECT_EQ(after.optim.lr, 0.1 + 0.2);
  EXPECT_EQ(after.optim.weight_decay, 5e-324) << "the smallest there is";
  EXPECT_EQ(after.optim.momentum, std::nextafter(1.0, 0.0));
  EXPECT_EQ(after.optim.eps, std::numeric_limits<double>::max());
  EXPECT_EQ(after.run.dir, "my runs: # 1, \"x\" \\ é");
}

TEST(Print, TextsThatLookLikeSomethingElseStayTexts) {
  for (const auto* name :
       {"null", "NULL", "~", "true", "1e3", "-", "a: b", "[x]", "#1", "' '", "*x", "&x",
        "!x", "%x", "@x", "{", "?", "|", "---x"}) {
    auto before = config::defaults({}, {});
    before.config.run.name = name;
    EXPECT_EQ(RecipeFile(config::to_yaml(before, true)).load().config.run.name, name);
  }
}

TEST(Print, DefaultsLoadBackWithTheirAutos) {
  const auto before = config::defaults({}, {});
  const auto after = RecipeFile(config::to_yaml(before, true)).load();
  EXPECT_EQ(config::auto_keys(after), config::auto_keys(before));
  EXPECT_EQ(config::to_yaml(after, false), config::to_yaml(before, false));
}

TEST(Print, CommentsSayWhereAValueCameFromAndAreAligned) {
  const RecipeFile recipe("optim: {lr: 0.5}\n");
  auto loaded = recipe.load({{"optim.eps", "1e-6"}}, {{"LOCKSTEP_OPTIM_BETA1", "0.5"}});
  config::set(loaded, {"parallel.ranks", "1"}, {config::Origin::planner, "one\nrank"});
  const auto yaml = config::to_yaml(loaded, true);
  EXPECT_THAT(yaml, HasSubstr(" # recipe " + recipe.path().string() + ":1:13\n"));
  EXPECT_THAT(yaml, HasSubstr(" # override optim.eps=1e-6\n"));
  EXPECT_THAT(yaml, HasSubstr(" # environment LOCKSTEP_OPTIM_BETA1\n"));
  EXPECT_THAT(yaml, HasSubstr(" # planner: one rank\n"));
  std::map<std::size_t, int> columns;
  std::istringstream lines(yaml);
  for (std::string line; std::getline(lines, line);) {
    const auto comment = line.find(" # ");
    if (comment != std::string::npos) ++columns[comment];
  }
  EXPECT_EQ(columns.size(), 1u) << yaml;
}

TEST(Print, ARecipeWithAnOddNameGivesAConfigThatLoads) {
  const RecipeFile recipe("optim: {lr: 0.5}\n", "caf\xE9 \x1b[31m\xF0\x9F\xFF.yaml");
  const auto yaml = config::to_yaml(recipe.load(), true);
  EXPECT_THAT(yaml, HasSubstr("/caf\xEF\xBF\xBD  [31m"));
  EXPECT_EQ(RecipeFile(yaml).load().config.optim.lr, 0.5);
}

TEST(Print, JsonHasTypedValuesAndSources) {
  const auto loaded = config::defaults(unusual_values(), {});
  const auto json = nlohmann::json::parse(config::to_json(loaded));
  EXPECT_EQ(json["optim"]["lr"]["value"].get<double>(), 0.1 + 0.2);
  EXPECT_EQ(json["optim"]["lr"]["source"], "override");
  EXPECT_EQ(json["optim"]["lr"]["where"], "optim.lr=0.30000000000000004");
  EXPECT_EQ(json["run"]["seed"]["value"].get<std::uint64_t>(), ~std::uint64_t{0});
  EXPECT_EQ(json["train"]["anomaly"]["value"], true);
  EXPECT_EQ(json["parallel"]["bucket_bytes"]["value"], 1000001);
  EXPECT_EQ(json["eval"]["every"]["value"], "epoch");
  EXPECT_EQ(json["monitor"]["sinks"]["value"],
            (nlohmann::json{"wandb", "prometheus", "mlflow"}));
  EXPECT_EQ(nlohmann::json::parse(
                config::to_json(config::defaults({}, {})))["monitor"]["sinks"]["value"],
            (nlohmann::json{"console", "jsonl"}));
  for (const auto& key : config::keys()) {
    const auto dot = key.find('.');
    EXPECT_TRUE(json[key.substr(0, dot)].contains(key.substr(dot + 1))) << key;
  }
}

TEST(Print, TableHasALineForEveryKnob) {
  const auto table = config::to_table(config::defaults({}, {}));
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'),
            static_cast<std::ptrdiff_t>(config::keys().size()) + 1);
  EXPECT_THAT(
      table,
      HasSubstr(
          "\noptim.lr                          0.001                   default\n"));
}

}  // namespace lockstep::test
