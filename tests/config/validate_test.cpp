// Knobs that do not fit together, and what this version refuses.
#include "tests/config/recipe_file.h"

using ::testing::HasSubstr;

namespace lockstep::test {

TEST(Validate, AnOverrideOfTheLengthReplacesTheRecipes) {
  const auto loaded = RecipeFile("train: {epochs: 5}\n").load({{"train.steps", "7"}});
  EXPECT_EQ(loaded.config.train.steps.value(), 7);
  EXPECT_TRUE(loaded.config.train.epochs.is_auto());
}

TEST(Validate, DropsOfTheRateAreThoseOfTheScheduleThatHasThem) {
  EXPECT_THAT(problem_with("schedule.milestones", "[3, 5]"),
              HasSubstr("are multi_step's, but schedule.name is constant"));
  EXPECT_THAT(problem_with("schedule.name", "multi_step"),
              HasSubstr("schedule.milestones: is empty"));
  EXPECT_THAT(problem_of("schedule: {name: multi_step, milestones: [5, 3]}\n"),
              HasSubstr("3 stands after 5; write them in rising order"));
  EXPECT_NO_THROW(
      with({{"schedule.name", "multi_step"}, {"schedule.milestones", "3,5"}}));
  EXPECT_THAT(problem_with("schedule.name", "step"),
              HasSubstr("schedule.step_size: 0, but schedule.name is step"));
}

TEST(Validate, ASizeByNameStandsForTheKnobsThatNobodySet) {
  const auto loaded = RecipeFile("model: {name: gpt, size: gpt2-medium}\n").load();
  EXPECT_EQ(loaded.config.model.hidden, 1024);
  EXPECT_EQ(loaded.config.model.layers, 24);
  EXPECT_EQ(loaded.config.model.heads, 16);
  EXPECT_EQ(loaded.sources.at("model.heads").where, "model.size is gpt2-medium");
  EXPECT_EQ(
      RecipeFile("model: {name: gpt, size: gpt2-355m}\n").load().config.model.hidden,
      1024);
  EXPECT_THAT(problem_of("model: {name: gpt, size: gpt2, layers: 6}\n"),
              HasSubstr("x.yaml:1:40: model.layers: 6, but model.size=gpt2 has 12"));
  EXPECT_THAT(problem_of("model: {name: gpt, size: gpt3}\n"), HasSubstr("'gpt2'"));
}

TEST(Validate, ASampleHasNoMoreTokensThanTheModelPositions) {
  EXPECT_THAT(problem_of("model: {name: gpt, context: 512}\n"
                         "data: {name: tokens, dir: x, sequence: 1024}\n"),
              HasSubstr("model.context: 512 positions, but a sample has 1024 tokens"));
  EXPECT_NO_THROW(RecipeFile("model: {name: gpt, context: 1024}\n"
                             "data: {name: tokens, dir: x, sequence: 512}\n")
                      .load());
}

TEST(Validate, ATorchScriptModelHasAFileAndNamesForItsTensors) {
  EXPECT_THAT(problem_with("model.name", "torchscript"),
              HasSubstr("model.file: is empty, but model.name is torchscript"));
  const auto problem = [](const std::string& more) {
    return problem_of("model: {name: torchscript, file: a.pt, " + more + "}\n");
  };
  EXPECT_THAT(problem("outputs: []"), HasSubstr("model.outputs: is empty; name each"));
  EXPECT_THAT(problem("inputs: []"), HasSubstr("model.inputs: is empty; name each"));
  EXPECT_THAT(problem("inputs: [a, b, a]"),
              HasSubstr("model.inputs: 'a' appears twice"));
  EXPECT_THAT(problem("outputs: [a, a]"),
              HasSubstr("model.outputs: 'a' appears twice"));
  EXPECT_NO_THROW(with({{"model.name", "torchscript"}, {"model.file", "a.pt"}}));
}

TEST(Validate, AListOfNamesIsShownWithNamesOfItsOwn) {
  EXPECT_THAT(
      problem_of("eval: {metrics: {a: 1}}\n"),
      HasSubstr("eval.metrics: is a map; write a list like [top_k, per_class]"));
  EXPECT_THAT(problem_of("monitor: {sinks: {a: 1}}\n"),
              HasSubstr("write a list like [console, jsonl]"));
}

TEST(Validate, ASweepBeginsAboveZero) {
  EXPECT_THAT(problem_of("schedule: {name: sweep, start_ratio: 0}\n"),
              HasSubstr("schedule.start_ratio: 0, but schedule.name is sweep"));
  EXPECT_NO_THROW(with({{"schedule.name", "sweep"}, {"schedule.start_ratio", "1e-8"}}));
}

TEST(Validate, ALossThatDivergesIsMoreThanTheLeast) {
  EXPECT_THAT(problem_with("early_stop.divergence", "1"),
              HasSubstr("early_stop.divergence: 1 times the minimum loss"));
  EXPECT_NO_THROW(with({{"early_stop.divergence", "4"}}));
}

TEST(Validate, PartsOfATaskAndTheirWeightsFitTogether) {
  EXPECT_THAT(problem_with("task.name", "multi_task"),
              HasSubstr("task.parts: is empty, but task.name is multi_task"));
  EXPECT_THAT(problem_of("task: {name: regression, parts: {a: regression}}\n"),
              HasSubstr("names 1 parts, but task.name is regression"));
  EXPECT_THAT(problem_of("task: {parts: {vqa: regression}, loss: {vqb: 1}}\n"),
              HasSubstr("task.loss: 'vqb' is not one of task.parts, which has vqa; did "
                        "you mean 'vqa'?"));
  EXPECT_THAT(problem_with("task.loss", "{a: 1}"),
              HasSubstr("'a' is not one of task.parts, which is empty"));
  EXPECT_THAT(problem_of("task: {parts: {a: regression}, loss: {a: 0}}\n"),
              HasSubstr("all weights are 0"));
  EXPECT_THAT(problem_of("task: {parts: {a: regression}, loss_final: {a: 2}}\n"),
              HasSubstr("task.loss_ramp_steps is 0"));
  EXPECT_NO_THROW(with(
      {{"task.parts", "{a: regression, b: multi_label}"}, {"task.loss", "{a: 0}"}}));
}

TEST(Validate, FocalKnowsOneRightClass) {
  EXPECT_THAT(problem_of("task: {criterion: focal, label_smoothing: 0.1}\n"),
              HasSubstr("task.label_smoothing: 0.1, but task.criterion is focal"));
}

TEST(Validate, ProfiledStepsAreARangeWithinTheRun) {
  for (const std::string text : {"0:5", "7:6", "x", "1:", ":3", "1:2:3", "1:20000"}) {
    EXPECT_THAT(problem_with("profile.steps", "'" + text + "'"),
                HasSubstr("is not first:last"))
        << text;
  }
  EXPECT_THAT(problem_of("train: {steps: 8}\nprofile: {steps: '5:9'}\n"),
              HasSubstr("step 9 is to be timed, but train.steps is 8"));
  EXPECT_EQ(with({{"profile.steps", "10:20"}}).profile.steps, "10:20");
  const auto range = config::parse_step_range("10:20").value();
  EXPECT_FALSE(range.has(9));
  EXPECT_TRUE(range.has(10) && range.has(20));
  EXPECT_FALSE(range.has(21));
  EXPECT_EQ(config::parse_step_range("12").value().last, 12);
}

TEST(Validate, AFlagNeedsThePolicyThatReadsIt) {
  EXPECT_THAT(problem_with("planner.enable_distributed", "false"),
              HasSubstr("false is for the policy flags, but planner.policy is "
                        "measured"));
  EXPECT_NO_THROW(
      with({{"planner.policy", "flags"}, {"planner.enable_data_parallel", "false"}}));
}

TEST(Validate, AKnobOfASinkNeedsTheSink) {
  for (const auto& [key, value] :
       std::initializer_list<std::pair<std::string, std::string>>{
           {"monitor.prometheus_port", "9400"},
           {"monitor.prometheus_file", "x.prom"},
           {"monitor.dcgm_names", "true"}}) {
    EXPECT_THAT(problem_with(key, value),
                HasSubstr(key + ": is a knob of the prometheus sink"));
    EXPECT_NO_THROW(with({{"monitor.sinks", "[prometheus]"}, {key, value}}));
  }
  EXPECT_THAT(problem_with("monitor.wandb_entity", "us"), HasSubstr("the wandb sink"));
  EXPECT_THAT(problem_with("monitor.wandb_sync_every", "1s"),
              HasSubstr("the wandb sink"));
  EXPECT_THAT(problem_with("monitor.mlflow_uri", "http://x"),
              HasSubstr("the mlflow sink"));
  EXPECT_THAT(problem_with("monitor.mlflow_experiment", "''"), HasSubstr("is empty"));
  EXPECT_THAT(problem_with("monitor.wandb_project", "''"), HasSubstr("is empty"));
}

TEST(Validate, AWarmUpIsInStepsOrInEpochs) {
  EXPECT_THAT(problem_of("schedule: {warmup_steps: 5, warmup_epochs: 0.5}\n"),
              HasSubstr("schedule.warmup_epochs: 0.5, but schedule.warmup_steps is 5"));
}

TEST(Validate, PrintsTheArithmeticOfMicroBatches) {
  EXPECT_EQ(
      problem_of("batch: {per_rank: 64, micro: 16, accumulation: 2}\n"),
      "x.yaml:1:19: batch.per_rank: 64, but batch.micro * batch.accumulation = 16 * 2 "
      "= 32; leave one of them auto");
  EXPECT_THAT(
      problem_of("batch: {per_rank: 64, micro: 24}\n"),
      HasSubstr("64 is not a multiple of batch.micro=24: 64 = 2 * 24 + 16; choose 72"));
}

TEST(Validate, PrintsTheArithmeticOfRanks) {
  EXPECT_THAT(
      problem_of("batch: {global: 100, per_rank: 32}\nparallel: {ranks: 3}\n"),
      HasSubstr("batch.global: 100, but batch.per_rank * parallel.ranks = 32 * 3 = "
                "96; leave one of them auto"));
  EXPECT_THAT(
      problem_of("batch: {global: 100}\nparallel: {ranks: 3}\n"),
      HasSubstr("batch.global: 100 is not a multiple of parallel.ranks=3: 100 = 33 * "
                "3 + 1; choose 102"));
}

TEST(Validate, HoldsMicroBatchesAgainstTheGlobalOne) {
  EXPECT_THAT(
      problem_of(
          "batch: {global: 64, micro: 16, accumulation: 3}\nparallel: {ranks: 1}\n"),
      HasSubstr(
          "batch.global: 64, but batch.micro * batch.accumulation = 16 * 3 = 48"));
}

// The advised values are ones that work: "a; choose N" is followed until nothing is
// left to say, which is at once.
TEST(Validate, TheAdvisedBatchIsOneThatWorks) {
  const std::initializer_list<std::vector<config::Override>> kAsked = {
      {{"batch.global", "66"}, {"batch.micro", "5"}, {"parallel.ranks", "3"}},
      {{"batch.global", "66"}, {"batch.micro", "5"}, {"parallel.ranks", "4"}},
      {{"batch.global", "66"}, {"batch.accumulation", "5"}, {"parallel.ranks", "3"}},
      {{"batch.global", "100"}, {"batch.per_rank", "30"}},
      {{"batch.per_rank", "64"}, {"batch.micro", "24"}},
      {{"batch.per_rank", "22"}, {"batch.micro", "5"}, {"parallel.ranks", "3"}},
      {{"batch.global", "16777216"}, {"parallel.ranks", "3"}},
      {{"batch.global", "16777213"}, {"batch.micro", "7"}, {"parallel.ranks", "1"}}};
  for (auto asked : kAsked) {
    const auto text = error_text(Fault::config, [&] { config::defaults(asked, {}); });
    const auto at = text.rfind("choose ");
    ASSERT_NE(at, std::string::npos) << text;
    const auto value = text.substr(at + 7);
    for (auto& knob : asked) {
      if (text.find(knob.key + ": " + knob.value) != std::string::npos)
        knob.value = value;
    }
    EXPECT_NO_THROW(config::defaults(asked, {})) << text;
  }
}

TEST(Validate, WhatNoValueOfOneKnobCanMendIsLeftAuto) {
  EXPECT_THAT(problem_of("batch: {global: 66, per_rank: 22, micro: 5}\n"
                         "parallel: {ranks: 3}\n"),
              HasSubstr("22 = 4 * 5 + 2; leave one of them auto"));
}

TEST(Validate, TakesFormsThatAgree) {
  const RecipeFile recipe(
      "batch: {global: 64, per_rank: 64, micro: 16, accumulation: 4}\n"
      "parallel: {ranks: 1}\n");
  EXPECT_NO_THROW(recipe.load());
}

TEST(Validate, StepsAndEpochsContradictEachOther) {
  EXPECT_EQ(
      problem_of("train: {steps: 5, epochs: 2}\n"),
      "x.yaml:1:16: train.steps: 5, but train.epochs is 2, too; leave one out, or set "
      "train.epochs=auto");
  EXPECT_EQ(with({{"train.steps", "5"}, {"train.epochs", "0"}}).train.epochs.value(), 0)
      << "0: not the measure";
  EXPECT_THAT(problem_with("train.epochs", "0"),
              HasSubstr("there is nothing to train"));
}

TEST(Validate, WarmUpEndsBeforeTraining) {
  EXPECT_THAT(problem_of("train: {steps: 5}\nschedule: {warmup_steps: 6}\n"),
              HasSubstr("schedule.warmup_steps: 6 is more than train.steps=5"));
  EXPECT_NO_THROW(with({{"train.steps", "5"}, {"schedule.warmup_steps", "5"}}));
}

TEST(Validate, NesterovNeedsSgdWithMomentum) {
  EXPECT_THAT(problem_with("optim.nesterov", "true"), HasSubstr("set optim.name=sgd"));
  EXPECT_THAT(problem_of("optim: {name: sgd, nesterov: on, momentum: 0}\n"),
              HasSubstr("optim.momentum is 0"));
  EXPECT_NO_THROW(with({{"optim.name", "sgd"}, {"optim.nesterov", "on"}}));
  EXPECT_NO_THROW(with({{"optim.momentum", "0.5"}}))
      << "a default of sgd's, no contradiction";
}

TEST(Validate, DataSetsWithoutAUsualPlaceNeedTheirFolder) {
  for (const auto* name : {"idx", "cifar10", "cifar100", "image_folder", "tokens"}) {
    EXPECT_THAT(problem_with("data.name", name), HasSubstr("set data.dir")) << name;
    EXPECT_NO_THROW(with({{"data.name", name}, {"data.dir", "/d"}}));
  }
  EXPECT_THAT(problem_with("data.name", "synthetic"), HasSubstr("set data.shape"));
  EXPECT_NO_THROW(with({{"data.name", "synthetic"}, {"data.shape", "[3, 8, 8]"}}));
}

TEST(Validate, MeanAndDeviationGoTogether) {
  EXPECT_THAT(problem_with("data.mean", "0.5"),
              HasSubstr("data.mean: 1 values, but data.std has 0"));
  EXPECT_NO_THROW(with({{"data.mean", "[0.5, 0.4, 0.3]"}, {"data.std", "1, 1, 2"}}));
  EXPECT_THAT(problem_with("data.std", "0"), HasSubstr("above 0"));
}

TEST(Validate, ClassesAreWeighedInOneWay) {
  EXPECT_THAT(problem_of("data: {class_weights: [1, 2], balanced_loss: true}\n"),
              HasSubstr("drop one of them"));
  EXPECT_THAT(problem_with("data.class_weights", "[0, 0]"), HasSubstr("are all 0"));
  EXPECT_THAT(problem_with("data.class_weights", "[-1]"), HasSubstr("at least 0"));
  EXPECT_THAT(problem_of("data: {weighted_sampling: true, shuffle: false}\n"),
              HasSubstr("set data.shuffle=true"));
}

TEST(Validate, BetasAreBelowOne) {
  EXPECT_THAT(problem_with("optim.beta1", "1"), HasSubstr("at least 0 and below 1"));
  EXPECT_THAT(problem_with("optim.beta2", "-0.1"), HasSubstr("at least 0 and below 1"));
}

TEST(Validate, IdxFilesNeedTheirFolder) {
  EXPECT_THAT(problem_with("data.name", "idx"), HasSubstr("set data.dir"));
  EXPECT_NO_THROW(with({{"data.name", "idx"}, {"data.dir", "/data"}}));
}

TEST(Validate, ASingleStrategyHasOneRank) {
  const auto wanted = [] {
    with({{"parallel.strategy", "single"}, {"parallel.ranks", "2"}});
  };
  EXPECT_THAT(test::error_text(Fault::config, wanted),
              HasSubstr("parallel.ranks is 2; set parallel.strategy=ddp"));
  EXPECT_NO_THROW(with({{"parallel.strategy", "ddp"}, {"parallel.ranks", "2"}}));
}

TEST(Validate, TimeoutsAreAboveZero) {
  EXPECT_THAT(problem_with("comm.timeout", "0s"), HasSubstr("above zero"));
  EXPECT_THAT(problem_with("comm.join_timeout", "0s"), HasSubstr("above zero"));
}

TEST(Validate, EveryStageIsTakenAndAnEmptyPathToResumeFromIsNot) {
  for (const auto* stage : {"1", "2", "3"}) {
    EXPECT_NO_THROW(
        with({{"parallel.strategy", "zero"}, {"parallel.zero_stage", stage}}));
  }
  EXPECT_THAT(problem_with("checkpoint.resume", ""), HasSubstr("auto, never or"));
  EXPECT_NO_THROW(with({{"parallel.ranks", "1"},
                        {"parallel.strategy", "single"},
                        {"parallel.zero_stage", "3"},
                        {"checkpoint.resume", "never"}}));
}

TEST(Validate, WhatZeroDoesIsNotSwitchedOffBesideIt) {
  const auto refused = [](const std::string& key, const std::string& value) {
    return error_text(Fault::config, [&] {
      with({{"parallel.strategy", "zero"}, {key, value}});
    });
  };
  EXPECT_THAT(refused("parallel.gradient_as_bucket_view", "false"),
              HasSubstr("parallel.strategy=ddp"));
  EXPECT_THAT(refused("parallel.shard_update", "off"),
              HasSubstr("parallel.strategy=ddp"));
}

TEST(Validate, GroupsOfShardsDivideTheRanks) {
  const auto refused = [](const std::string& ranks, const std::string& group) {
    return error_text(Fault::config, [&] {
      with({{"parallel.strategy", "zero"},
            {"parallel.ranks", ranks},
            {"parallel.shard_group", group}});
    });
  };
  EXPECT_THAT(refused("12", "5"),
              HasSubstr("12 ranks are not groups of 5: 12 = 2 x 5 + 2; set "
                        "parallel.shard_group=4 or 6"));
  EXPECT_THAT(refused("7", "2"), HasSubstr("7 = 3 x 2 + 1; set "
                                           "parallel.shard_group=7"));
  EXPECT_THAT(refused("4", "6"), HasSubstr("groups of 6, but there are 4 ranks; set "
                                           "parallel.shard_group=4"));
  EXPECT_THAT(refused("6", "1"), HasSubstr("set parallel.shard_group=2, or "
                                           "parallel.strategy=ddp"));
  for (const auto* group : {"0", "2", "3", "6"}) {
    EXPECT_NO_THROW(with({{"parallel.strategy", "zero"},
                          {"parallel.ranks", "6"},
                          {"parallel.shard_group", group}}));
  }
}

TEST(Validate, DevicesAreNamedForDataParallel) {
  const auto ids = with({{"parallel.strategy", "data_parallel"},
                         {"parallel.device_ids", "[0, 0, 1]"}})
                       .parallel.device_ids;
  EXPECT_EQ(ids, (std::vector{0, 0, 1}));
  EXPECT_THAT(problem_with("parallel.device_ids", "0,1"),
              HasSubstr("set parallel.strategy=data_parallel"));
  EXPECT_THAT(problem_with("parallel.device_ids", "[0, x]"),
              HasSubstr("'x' is not a whole number"));
  EXPECT_THAT(error_text(Fault::config,
                         [] {
                           with({{"parallel.strategy", "data_parallel"},
                                 {"parallel.ranks", "3"},
                                 {"parallel.device_ids", "[0, 1]"}});
                         }),
              HasSubstr("names 2 devices, but parallel.ranks is 3"));
}

TEST(Validate, SharesBySpeedNeedRanksThatDoNotWaitInEveryLayer) {
  EXPECT_THAT(
      error_text(
          Fault::config,
          [] {
            with({{"parallel.balance", "on"}, {"parallel.sync_batch_norm", "on"}});
          }),
      HasSubstr("switch one of them off"));
}

TEST(Validate, ShardsOfGradientsAreNotWholeGradients) {
  EXPECT_THAT(error_text(Fault::config,
                         [] {
                           with({{"parallel.shard_update", "on"},
                                 {"parallel.gradient_as_bucket_view", "off"}});
                         }),
              HasSubstr("keeps full ones"));
}

TEST(Validate, BucketsHaveOneSize) {
  EXPECT_NO_THROW(
      with({{"parallel.bucket_cap_mb", "2"}, {"parallel.bucket_bytes", "2MiB"}}));
  EXPECT_THAT(
      error_text(
          Fault::config,
          [] {
            with({{"parallel.bucket_cap_mb", "2"}, {"parallel.bucket_bytes", "2MB"}});
          }),
      HasSubstr("2 MiB is 2097152 bytes, but parallel.bucket_bytes is 2000000"));
}

TEST(Validate, ThreadsAndProcessesHaveBackendsOfTheirOwn) {
  EXPECT_THAT(problem_with("comm.backend", "local"),
              HasSubstr("set parallel.strategy=data_parallel"));
  EXPECT_THAT(
      error_text(
          Fault::config,
          [] {
            with({{"parallel.strategy", "data_parallel"}, {"comm.backend", "gloo"}});
          }),
      HasSubstr("set comm.backend=auto"));
}

TEST(Validate, RunNamesArePlain) {
  EXPECT_NO_THROW(with({{"run.name", "my run-2.b"}}));
  for (const auto* name : {"a/b", "/", "../up"}) {
    EXPECT_THAT(problem_with("run.name", name), HasSubstr("is not a plain name"))
        << name;
  }
  for (const auto* name : {".", "..", ".hidden"}) {
    EXPECT_THAT(problem_with("run.name", name), HasSubstr("would be hidden")) << name;
  }
  EXPECT_NO_THROW(with({{"run.name", std::string(100, 'x')}}));
  EXPECT_THAT(problem_with("run.name", std::string(101, 'x')),
              HasSubstr("has 101 bytes"));
  EXPECT_THAT(problem_with("run.dir", ""), HasSubstr("run.dir: is empty"));
}

TEST(Validate, ReportsAllContradictionsTogether) {
  const auto text = problem_of("train: {steps: 5, epochs: 2}\noptim: {nesterov: on}\n");
  EXPECT_THAT(text, HasSubstr("train.steps"));
  EXPECT_THAT(text, HasSubstr("optim.nesterov"));
}

}  // namespace lockstep::test
