// How each type of knob is read.
#include <map>

#include "lockstep/base/str.h"
#include "tests/config/recipe_file.h"

using ::testing::HasSubstr;

namespace lockstep::test {

TEST(Values, IntegersMayBeWrittenAsPowers) {
  EXPECT_EQ(with({{"train.steps", "1e6"}}).train.steps.value(), 1000000);
  EXPECT_EQ(with({{"train.steps", " 12 "}}).train.steps.value(), 12);
  EXPECT_THAT(problem_with("train.steps", "1.5"),
              HasSubstr("'1.5' is not a whole number"));
  EXPECT_THAT(problem_with("train.steps", "12x"),
              HasSubstr("'12x' is not a whole number"));
  EXPECT_THAT(problem_with("train.steps", ""),
              HasSubstr("is empty; write a whole number"));
}

TEST(Values, OutOfRangeShowsValueAndRange) {
  EXPECT_EQ(
      problem_with("parallel.zero_stage", "4"),
      "override 'parallel.zero_stage=4': parallel.zero_stage: 4 is out of range; it "
      "must be 1 to 3 (or auto)");
  EXPECT_THAT(problem_with("optim.lr", "0"),
              HasSubstr("0 is out of range; it must be above 0"));
  EXPECT_THAT(problem_with("model.dropout", "1"),
              HasSubstr("1 is out of range; it must be at least 0 and below 1"));
  EXPECT_THAT(problem_with("data.workers", "99999999999"),
              HasSubstr("it must be 1 to 64"))
      << "larger than an int";
  EXPECT_THAT(problem_with("batch.global", "0"),
              HasSubstr("it must be 1 to 16,777,216"));
}

TEST(Values, BoundsOfARangeBelongToIt) {
  EXPECT_EQ(with({{"parallel.zero_stage", "3"}}).parallel.zero_stage.value(), 3);
  EXPECT_EQ(with({{"model.dropout", "0"}}).model.dropout, 0);
  EXPECT_EQ(with({{"schedule.final_ratio", "1"}}).schedule.final_ratio, 1);
}

TEST(Values, SeedsTakeAll64Bits) {
  EXPECT_EQ(with({{"run.seed", "18446744073709551615"}}).run.seed, ~std::uint64_t{0});
  EXPECT_EQ(with({{"run.seed", "1e6"}}).run.seed, 1000000u);
  EXPECT_THAT(problem_with("run.seed", "18446744073709551616"), HasSubstr("2^64 - 1"));
  EXPECT_THAT(problem_with("run.seed", "-1"), HasSubstr("it must be at least 0"));
}

TEST(Values, NumbersAreFinite) {
  EXPECT_EQ(with({{"optim.lr", "1e-4"}}).optim.lr, 1e-4);
  for (const auto* text :
       {"nan", "inf", "-inf", ".inf", "1e999", "1e-4x", "0,1", "0x10"}) {
    EXPECT_THAT(problem_with("optim.lr", text), HasSubstr("is not a number")) << text;
  }
}

TEST(Values, BooleansHaveSixSpellings) {
  for (const auto* text : {"true", "yes", "on", "True", "YES"}) {
    EXPECT_TRUE(with({{"train.anomaly", text}}).train.anomaly) << text;
  }
  for (const auto* text : {"false", "no", "off", "False"}) {
    EXPECT_FALSE(with({{"data.shuffle", text}}).data.shuffle) << text;
  }
  EXPECT_THAT(problem_with("data.shuffle", "1"), HasSubstr("neither true nor false"));
}

TEST(Values, BytesHaveUnits) {
  EXPECT_EQ(with({{"parallel.bucket_bytes", "25MB"}}).parallel.bucket_bytes.value(),
            25000000);
  EXPECT_EQ(with({{"parallel.bucket_bytes", "1.5GiB"}}).parallel.bucket_bytes.value(),
            1610612736);
  EXPECT_EQ(with({{"parallel.bucket_bytes", "512"}}).parallel.bucket_bytes.value(),
            512);
  EXPECT_THAT(problem_with("parallel.bucket_bytes", "25M"),
              HasSubstr("'25M' is not a size like 25MB or 1.5GiB"));
}

TEST(Values, TimesHaveUnits) {
  using std::chrono::minutes;
  EXPECT_EQ(with({{"train.max_time", "1h30m"}}).train.max_time, minutes(90));
  EXPECT_EQ(with({{"train.max_time", "90"}}).train.max_time, std::chrono::seconds(90));
  EXPECT_THAT(problem_with("train.max_time", "5 parsecs"), HasSubstr("is not a time"));
  EXPECT_THAT(problem_with("train.max_time", "-5s"), HasSubstr("is not a time"));
  EXPECT_THAT(problem_with("train.max_time", "0.0001s"), HasSubstr("shorter than 1ms"))
      << "0 would mean no limit";
}

TEST(Values, NamesHaveSuggestions) {
  EXPECT_EQ(with({{"optim.name", "sgd"}}).optim.name, config::Optimizer::sgd);
  EXPECT_EQ(problem_with("optim.name", "admw"),
            "override 'optim.name=admw': optim.name: 'admw' is not one of adamw, adam, "
            "sgd, lion; did "
            "you mean 'adamw'?");
  EXPECT_THAT(problem_with("model.name", "cmn"), HasSubstr("; did you mean 'cnn'?"));
  EXPECT_THAT(problem_with("data.name", "fashion"),
              HasSubstr("did you mean 'fashion_mnist'"));
}

TEST(Values, ListsHaveTwoForms) {
  using config::Sink;
  EXPECT_EQ(with({{"monitor.sinks", "[jsonl, console]"}}).monitor.sinks,
            (std::vector{Sink::jsonl, Sink::console}));
  EXPECT_EQ(with({{"monitor.sinks", "jsonl, console"}}).monitor.sinks,
            (std::vector{Sink::jsonl, Sink::console}));
  EXPECT_TRUE(with({{"monitor.sinks", "[]"}}).monitor.sinks.empty());
  EXPECT_THAT(problem_with("monitor.sinks", "consol"),
              HasSubstr("did you mean 'console'?"));
  EXPECT_THAT(problem_with("monitor.sinks", "jsonl,jsonl"),
              HasSubstr("'jsonl' appears twice"));
  EXPECT_THAT(problem_with("monitor.sinks", "[[jsonl]]"), HasSubstr("is a list"));
}

using Weights = std::map<std::string, double>;
const config::Override kTwoParts{"task.parts",
                                 "{vqa: classification, x_2: regression}"};

TEST(Values, MapsHaveNamesAndValues) {
  using config::PartKind;
  const auto config = with({kTwoParts, {"task.loss", " {vqa: 1, x_2: 0.5} "}});
  EXPECT_EQ(config.task.loss, (Weights{{"vqa", 1}, {"x_2", 0.5}}));
  EXPECT_EQ(config.task.parts.at("x_2"), PartKind::regression);
  EXPECT_TRUE(with({{"task.loss", "{}"}}).task.loss.empty());
  EXPECT_THAT(problem_with("task.loss", "vqa"),
              HasSubstr("is a single value; write a map like {a: 0.5}"));
  EXPECT_THAT(problem_with("task.loss", "[1, 2]"), HasSubstr("is a list; write a map"));
  EXPECT_THAT(problem_with("task.loss", "{vqa: 1"), HasSubstr("not YAML"));
  EXPECT_THAT(problem_with("task.loss", "{vqa: -1}"),
              HasSubstr("'vqa': -1 is out of range; it must be at least 0"));
  EXPECT_THAT(problem_with("task.parts", "{vqa: classify}"),
              HasSubstr("'vqa': 'classify' is not one of classification, multi_label"));
  EXPECT_THAT(problem_with("task.loss", "{vqa: 1, vqa: 2}"),
              HasSubstr("'vqa' appears twice"));
  for (const auto* name : {"1a", "a b", "a.b", "\"\"", "é"}) {
    EXPECT_THAT(problem_with("task.loss", str("{", name, ": 1}")),
                HasSubstr("is not a name"))
        << name;
  }
}

TEST(Values, AMapInARecipeIsRefusedWhereItIsWrong) {
  EXPECT_EQ(problem_of("task:\n  loss:\n    vqa: 1\n    x: high\n"),
            "x.yaml:4:8: task.loss: 'x': 'high' is not a number; write one like 0.001 "
            "or 1e-3");
  EXPECT_EQ(problem_of("task: {loss: {vqa: 1, 2: 3}}\n"),
            "x.yaml:1:23: task.loss: '2' is not a name; write up to 60 letters, digits "
            "and _, the first one a letter");
  EXPECT_THAT(problem_of("task: {loss: {vqa: }}\n"), HasSubstr("x.yaml:1:15: "));
  EXPECT_THAT(problem_of("task:\n  loss:\n"), HasSubstr("has no value; write a map"));
}

TEST(Values, MapsComeFromTheEnvironment) {
  const auto loaded = config::defaults({}, {{"LOCKSTEP_TASK_PARTS", kTwoParts.value},
                                            {"LOCKSTEP_TASK_LOSS", "{vqa: 2}"}});
  EXPECT_EQ(loaded.config.task.loss, (Weights{{"vqa", 2}}));
  EXPECT_EQ(config::get(loaded, "task.parts"), kTwoParts.value);
}

TEST(Values, AutoIsAValueOfSomeKnobs) {
  EXPECT_TRUE(with({{"batch.global", "auto"}}).batch.global.is_auto());
  EXPECT_THAT(problem_with("batch.global", "lots"),
              HasSubstr("'lots' is not a whole number (or auto)"));
  EXPECT_THAT(problem_with("train.log_every", "auto"),
              HasSubstr("is not a whole number"));
}

TEST(Values, EvaluationMayFollowTheEpochs) {
  EXPECT_EQ(with({{"eval.every", "epoch"}}).eval.every.value(), config::kEachEpoch);
  EXPECT_THAT(problem_with("eval.every", "-1"), HasSubstr("out of range"))
      << "the number behind the word is no value of its own";
  EXPECT_THAT(problem_with("eval.every", "epochs"), HasSubstr("(or epoch)"));
}

TEST(Values, TextsHaveNoControlCharacters) {
  EXPECT_THAT(problem_of("run:\n  name: \"a\\nb\"\n"),
              HasSubstr("has control character 10"));
}

TEST(Values, LongTextsAreCutInErrors) {
  const auto text = problem_of("optim:\n  lr: " + std::string(5000, 'x') + "\n");
  EXPECT_LT(text.size(), 200u);
}

}  // namespace lockstep::test
