#include "lockstep/cli/detail/train.h"
#include "tests/cli/rig.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

// What `lockstep train <recipe> words...` asks for.
class WantedConfig : public ::testing::Test {
 protected:
  config::Loaded wanted(std::vector<std::string> words, const std::string& recipe) {
    const auto path = directory_.path() / "recipe.yaml";
    test::write_file(path, recipe);
    words.insert(words.begin(), path.string());
    std::ostringstream out, err;
    const cli::Context context{.out = out,
                               .err = err,
                               .environment = {},
                               .executable = "",
                               .command_line = ""};
    return cli::wanted_config(cli::parse(cli::train_command(), words), context);
  }

  std::string refusal(const std::vector<std::string>& words) {
    return test::error_text(Fault::config,
                            [&] { wanted(words, "train: {steps: 3}\n"); });
  }

  static std::string value(const config::Loaded& loaded, const std::string& key) {
    return config::get(loaded, key);
  }

  files::TemporaryDirectory directory_;
};

TEST_F(WantedConfig, OptionsAreKnobs) {
  const auto loaded =
      wanted({"--ranks", "1", "--resume", "never", "-v"}, "run: {seed: 7}\n");
  EXPECT_EQ(value(loaded, "run.seed"), "7");
  EXPECT_EQ(value(loaded, "parallel.ranks"), "1");
  EXPECT_EQ(value(loaded, "checkpoint.resume"), "never");
  EXPECT_EQ(value(loaded, "monitor.verbosity"), "debug");
}

TEST_F(WantedConfig, OptionsAreShortForTheKnobsThatPeopleChangeMost) {
  const auto loaded =
      wanted({"--epochs", "7", "--batch", "96", "--lr", "3e-2", "--amp", "--ema"},
             "run: {seed: 7}\n");
  EXPECT_EQ(value(loaded, "train.epochs"), "7");
  EXPECT_EQ(value(loaded, "batch.global"), "96");
  EXPECT_EQ(value(loaded, "optim.lr"), "0.03");
  EXPECT_EQ(value(loaded, "precision.mode"), "bf16");
  EXPECT_EQ(value(loaded, "ema.enabled"), "true");
  const auto named =
      wanted({"--dcgm-names", "monitor.sinks=[prometheus]"}, "run: {seed: 7}\n");
  EXPECT_EQ(value(named, "monitor.dcgm_names"), "true");
  EXPECT_THAT(refusal({"--dcgm-names"}), HasSubstr("monitor.dcgm_names"));
  EXPECT_THAT(refusal({"--lr", "fast"}), HasSubstr("optim.lr"));
  EXPECT_THAT(refusal({"--lr", "0.1", "optim.lr=0.2"}), HasSubstr("set twice"));
}

TEST_F(WantedConfig, AProfileIsARangeOfSteps) {
  for (const std::string words : {"steps=2:3", "2:3"}) {
    const auto loaded = wanted({"--profile", words}, "train: {steps: 3}\n");
    EXPECT_EQ(loaded.config.profile.steps, "2:3") << words;
  }
  EXPECT_THAT(refusal({"--profile", "steps=2:9"}), HasSubstr("train.steps is 3"));
  EXPECT_THAT(refusal({"--profile", "epochs=1"}),
              HasSubstr("profile.steps: 'epochs=1'"));
}

TEST_F(WantedConfig, RunDirNamesTheVeryDirectory) {
  const auto loaded =
      wanted({"--run-dir", "some where/it's mine/"}, "run: {seed: 7}\n");
  EXPECT_EQ(loaded.config.run.dir, "some where");
  EXPECT_EQ(loaded.config.run.name, "it's mine");
  EXPECT_EQ(wanted({"--run-dir", "here"}, "run: {seed: 7}\n").config.run.dir, ".");
  EXPECT_EQ(wanted({"--run-dir", "/a/b"}, "run: {seed: 7}\n").config.run.dir, "/a");
  EXPECT_THAT(refusal({"--run-dir", "a/b\nc\"d\\"}),
              HasSubstr("run.name: has control character 10; write it on one line"));
  EXPECT_THAT(refusal({"--run-dir", "a\x07/b"}),
              HasSubstr("run.dir: has control character 7"));
  for (const auto* path : {"", ".", "..", "/"}) {
    EXPECT_THAT(refusal({"--run-dir", path}), HasSubstr("is not a new directory"))
        << path;
  }
}

TEST_F(WantedConfig, NumGpusChoosesTheDevice) {
  const auto cpu = wanted({"--num-gpus", "0"}, "run: {seed: 7}\n");
  EXPECT_EQ(cpu.config.parallel.device, config::Device::cpu);
  EXPECT_EQ(value(cpu, "parallel.ranks"), "1");
  const auto gpu = wanted({"--num-gpus", "1"}, "run: {seed: 7}\n");
  EXPECT_EQ(gpu.config.parallel.device, config::Device::cuda);
}

TEST_F(WantedConfig, ContradictionsAreRefused) {
  EXPECT_THAT(refusal({"--ranks", "1", "--num-gpus", "1"}),
              HasSubstr("give one of them"));
  EXPECT_THAT(refusal({"--ranks", "1", "parallel.ranks=2"}),
              HasSubstr("parallel.ranks is set twice"));
  EXPECT_THAT(refusal({"-q", "-v"}), HasSubstr("contradict"));
  EXPECT_THAT(refusal({"--ranks", "0"}), HasSubstr("at least 1"));
}

TEST_F(WantedConfig, ADebugRunIsTooShortForDropsOfTheRate) {
  const auto loaded = wanted({"--debug"},
                             "schedule: {name: multi_step, unit: epoch, milestones: "
                             "[30, 60], warmup_epochs: 5}\n");
  EXPECT_EQ(value(loaded, "schedule.name"), "constant");
  EXPECT_EQ(value(loaded, "schedule.warmup_epochs"), "0");
}

TEST_F(WantedConfig, DebugIsAFewSmallStepsWithEverythingShown) {
  const auto loaded =
      wanted({"--debug"}, "train: {epochs: 10}\nbatch: {global: 512}\n");
  EXPECT_EQ(value(loaded, "train.steps"), "5");
  EXPECT_TRUE(loaded.config.train.epochs.is_auto());
  EXPECT_EQ(value(loaded, "batch.global"), "8");
  EXPECT_EQ(value(loaded, "data.workers"), "1");
  EXPECT_EQ(value(loaded, "train.log_every"), "1");
  EXPECT_TRUE(loaded.config.train.anomaly);
  EXPECT_EQ(value(loaded, "monitor.verbosity"), "debug");
  EXPECT_EQ(loaded.sources.at("train.steps").where, "--debug");
}

TEST_F(WantedConfig, DebugKeepsASmallerBatchAndReplacesTheOtherForm) {
  EXPECT_EQ(value(wanted({"--debug"}, "batch: {global: 4}\n"), "batch.global"), "4");
  const auto loaded = wanted({"--debug"}, "batch: {per_rank: 64, accumulation: 2}\n");
  EXPECT_EQ(value(loaded, "batch.global"), "8");
  EXPECT_TRUE(loaded.config.batch.per_rank.is_auto());
  EXPECT_TRUE(loaded.config.batch.accumulation.is_auto());
}

TEST_F(WantedConfig, WhatThePersonTypedWinsOverDebug) {
  const auto loaded = wanted(
      {"--debug", "train.epochs=2", "batch.per_rank=16", "-q", "train.anomaly=false"},
      "run: {seed: 7}\n");
  EXPECT_EQ(value(loaded, "train.epochs"), "2");
  EXPECT_TRUE(loaded.config.train.steps.is_auto());
  EXPECT_EQ(value(loaded, "batch.per_rank"), "16");
  EXPECT_TRUE(loaded.config.batch.global.is_auto());
  EXPECT_EQ(value(loaded, "monitor.verbosity"), "quiet");
  EXPECT_FALSE(loaded.config.train.anomaly);
}

}  // namespace
}  // namespace lockstep
