// Overrides, the environment, and who wins.
#include "lockstep/config/load.h"
#include "tests/config/recipe_file.h"

using ::testing::HasSubstr;

namespace lockstep::test {

TEST(Override, IsAKeyAndAValue) {
  const auto parsed = config::parse_override("run.name=a=b");
  EXPECT_EQ(parsed.key, "run.name");
  EXPECT_EQ(parsed.value, "a=b") << "only the first = separates";
  EXPECT_THAT(error_text(Fault::config, [] { config::parse_override("optim.lr"); }),
              HasSubstr("section.key=value"));
  EXPECT_THAT(error_text(Fault::config, [] { config::parse_override("=3"); }),
              HasSubstr("section.key=value"));
}

TEST(Override, WinsOverEnvironmentOverRecipeOverDefault) {
  const RecipeFile recipe("optim: {lr: 0.1, eps: 0.1, beta1: 0.1}\n");
  const config::Environment environment = {{"LOCKSTEP_OPTIM_LR", "0.2"},
                                           {"LOCKSTEP_OPTIM_EPS", "0.2"}};
  const auto loaded = recipe.load({{"optim.lr", "0.3"}}, environment);
  EXPECT_EQ(loaded.config.optim.lr, 0.3);
  EXPECT_EQ(loaded.config.optim.eps, 0.2);
  EXPECT_EQ(loaded.config.optim.beta1, 0.1);
  EXPECT_EQ(loaded.config.optim.beta2, 0.999);
  EXPECT_EQ(loaded.sources.at("optim.lr").origin, config::Origin::override_);
  EXPECT_EQ(loaded.sources.at("optim.lr").where, "optim.lr=0.3");
  EXPECT_EQ(loaded.sources.at("optim.eps").origin, config::Origin::environment);
  EXPECT_EQ(loaded.sources.at("optim.eps").where, "LOCKSTEP_OPTIM_EPS");
  EXPECT_EQ(loaded.sources.at("optim.beta1").origin, config::Origin::recipe);
}

TEST(Override, TheLastOneWins) {
  EXPECT_EQ(with({{"optim.lr", "1"}, {"optim.lr", "2"}}).optim.lr, 2);
}

TEST(Override, NamesItselfInErrors) {
  EXPECT_EQ(problem_with("optim.lr", "abc"),
            "override 'optim.lr=abc': optim.lr: 'abc' is not a number; write one like "
            "0.001 or 1e-3");
  EXPECT_EQ(
      problem_with("optim.lrr", "1"),
      "override 'optim.lrr=1': unknown key 'optim.lrr'; did you mean 'optim.lr'?");
  EXPECT_EQ(problem_with("optm.lr", "1"),
            "override 'optm.lr=1': unknown section 'optm'; did you mean 'optim.lr'?");
  EXPECT_EQ(problem_with("optm.lrr", "1"),
            "override 'optm.lrr=1': unknown section 'optm'; did you mean 'optim'?");
  EXPECT_EQ(problem_with("optimizer.lr", "1"),
            "override 'optimizer.lr=1': unknown section 'optimizer'; did you mean "
            "'optim.lr'?");
  EXPECT_EQ(problem_with("trainer.max_epochs", "1"),
            "override 'trainer.max_epochs=1': unknown section 'trainer'; that is "
            "'train.epochs' here");
  EXPECT_EQ(problem_with("lr", "1"),
            "override 'lr=1': unknown section 'lr'; did you mean 'optim.lr'?");
}

TEST(Override, OfAWholeSectionSaysHowItIsDone) {
  EXPECT_EQ(problem_with("ema", "{decay: 0.5}"),
            "override 'ema={decay: 0.5}': 'ema' is a section; set its keys one by one: "
            "ema.enabled, ema.decay, ema.warmup, ema.every, ema.evaluate");
  EXPECT_THAT(error_text(Fault::config,
                         [] {
                           config::defaults({}, {{"LOCKSTEP_EMA", "{decay: 0.5}"}});
                         }),
              HasSubstr("LOCKSTEP_EMA: 'ema' is a section"));
}

TEST(Override, KeepsEveryCharacterOfAText) {
  EXPECT_EQ(with({{"run.dir", "my runs: #1 & *2"}}).run.dir, "my runs: #1 & *2");
  EXPECT_EQ(with({{"run.name", "null"}}).run.name, "null");
  EXPECT_EQ(with({{"run.name", ""}}).run.name, "");
}

TEST(Override, UnderstandsQuotesAndLists) {
  EXPECT_EQ(with({{"run.dir", "\"a b\""}}).run.dir, "a b");
  EXPECT_EQ(with({{"run.dir", "'a b'"}}).run.dir, "a b");
  EXPECT_EQ(with({{"monitor.sinks", "[jsonl]"}}).monitor.sinks,
            std::vector{config::Sink::jsonl});
  EXPECT_EQ(
      problem_with("monitor.sinks", "[jsonl"),
      "override 'monitor.sinks=[jsonl': monitor.sinks: not YAML: end of sequence flow "
      "not found");
}

TEST(Override, RefusesBytesThatAreNoText) {
  EXPECT_THAT(problem_with("run.dir", "caf\xE9"), HasSubstr("not UTF-8 at byte 4"));
  EXPECT_THAT(problem_with("run.dir", "a\nb"), HasSubstr("control character 10"));
}

TEST(Variables, UnknownKeyOfAKnownSectionIsAnError) {
  const config::Environment environment = {{"LOCKSTEP_OPTIM_LRR", "1"}};
  EXPECT_EQ(error_text(Fault::config, [&] { config::defaults({}, environment); }),
            "LOCKSTEP_OPTIM_LRR: unknown key 'optim.lrr'; did you mean 'optim.lr'?");
}

TEST(Variables, OfOthersAreLeftAlone) {
  const config::Environment environment = {{"LOCKSTEP_LIBTORCH", "/opt/libtorch"},
                                           {"LOCKSTEP_ORACLE", "off"},
                                           {"LOCKSTEP_NVCC_ROOT", "/opt/cuda"},
                                           {"OPTIM_LR", "nonsense"},
                                           {"LOCKSTEP_OPTIM_LR", ""}};
  EXPECT_EQ(config::defaults({}, environment).config.optim.lr, 1e-3);
}

TEST(Variables, ReachSectionsWithUnderscores) {
  const config::Environment environment = {{"LOCKSTEP_EARLY_STOP_PATIENCE", "7"}};
  EXPECT_EQ(config::defaults({}, environment).config.early_stop.patience, 7);
}

TEST(Variables, ThatAreNotUtf8AreNoFileToBeSaved) {
  for (const std::string value : {"a\xFF", "'a\xFF'"}) {
    const config::Environment environment = {{"LOCKSTEP_DATA_DIR", value}};
    EXPECT_THAT(
        error_text(Fault::config, [&] { config::defaults({}, environment); }),
        testing::AllOf(HasSubstr("LOCKSTEP_DATA_DIR: data.dir: not UTF-8 at byte "),
                       testing::EndsWith("; write the value in UTF-8")));
  }
}

TEST(Variables, ReachKeysWithUnderscores) {
  const config::Environment environment = {{"LOCKSTEP_TRAIN_LOG_EVERY", "7"}};
  EXPECT_EQ(config::defaults({}, environment).config.train.log_every, 7);
}

TEST(Variables, NameThemselvesInErrors) {
  const config::Environment environment = {{"LOCKSTEP_OPTIM_LR", "-1"}};
  EXPECT_EQ(error_text(Fault::config, [&] { config::defaults({}, environment); }),
            "LOCKSTEP_OPTIM_LR: optim.lr: -1 is out of range; it must be above 0");
}

TEST(Set, ChangesOneKnobAndRemembersWhy) {
  auto loaded = config::defaults({}, {});
  config::set(loaded, {"parallel.threads", "3"},
              {config::Origin::planner, "three cores"});
  EXPECT_EQ(loaded.config.parallel.threads.value(), 3);
  EXPECT_EQ(loaded.sources.at("parallel.threads").where, "three cores");
  EXPECT_EQ(config::get(loaded, "parallel.threads"), "3");
  EXPECT_THROW(config::set(loaded, {"parallel.thread", "3"}, {}), Error);
  EXPECT_THROW(config::set(loaded, {"parallel.threads", "0"}, {}), Error);
  EXPECT_EQ(loaded.config.parallel.threads.value(), 3)
      << "a refused value changes nothing";
}

TEST(Keys, AutoOnesAreThoseThePlannerFillsIn) {
  const auto loaded =
      config::defaults(std::vector<config::Override>{{"precision.mode", "fp32"}}, {});
  const auto keys = config::auto_keys(loaded);
  EXPECT_THAT(keys, ::testing::Contains("parallel.ranks"));
  EXPECT_THAT(keys, ::testing::Contains("parallel.device")) << "an enum's auto";
  EXPECT_THAT(keys, ::testing::Not(::testing::Contains("precision.mode")));
  EXPECT_THAT(keys, ::testing::Not(::testing::Contains("task.name")))
      << "only the data set can tell";
  EXPECT_THAT(keys, ::testing::Not(::testing::Contains("checkpoint.resume")))
      << "auto is one of its own values";
}

TEST(Auto, HasNoValueUntilItIsGiven) {
  config::Auto<int> knob;
  EXPECT_TRUE(knob.is_auto());
  EXPECT_EQ(knob.value_or(5), 5);
  EXPECT_THAT(error_text(Fault::internal, [&] { static_cast<void>(knob.value()); }),
              HasSubstr("still auto"));
  knob = 3;
  EXPECT_EQ(knob.value(), 3);
  EXPECT_EQ(knob, config::Auto<int>(3));
}

}  // namespace lockstep::test
