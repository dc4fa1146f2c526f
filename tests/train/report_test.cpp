#include "lockstep/train/report.h"

#include <nlohmann/json.hpp>
#include <signal.h>

#include "lockstep/models/model.h"
#include "tests/support/support.h"

namespace lockstep::train {
namespace {

using testing::HasSubstr;

Result some_result() {
  Result result;
  result.steps = 2345;
  result.samples = 300160;
  result.train_seconds = 100;
  result.seconds = 111;
  result.train_loss = 0.1;
  result.eval = Tally::Means{0.25, 0.9123, 10000};
  result.best_accuracy = 0.92;
  result.memory = {{512 << 20, 600 << 20, 1 << 30}};
  result.weights = "runs/1/model.safetensors";
  return result;
}

TEST(Report, TheResultTableSaysWhatCameOfIt) {
  const auto table = to_table(some_result());
  EXPECT_THAT(table, HasSubstr("test accuracy  91.23 %"));
  EXPECT_THAT(table, HasSubstr("tested on      10,000 samples"));
  EXPECT_THAT(table, HasSubstr("steps          2,345 (300,160 samples)"));
  EXPECT_THAT(table, HasSubstr("3,002 samples/s"));
  EXPECT_THAT(table, HasSubstr("runs/1/model.safetensors"));
}

TEST(Report, AStoppedRunSaysSo) {
  auto result = some_result();
  result.stopped_by = SIGINT;
  EXPECT_THAT(to_table(result), HasSubstr("stopped by Interrupt after step 2345"));
}

TEST(Report, JsonHasTheSameNumbers) {
  const auto json = nlohmann::json::parse(to_json(some_result()));
  EXPECT_EQ(json["eval_accuracy"], 0.9123);
  EXPECT_EQ(json["eval_samples"], 10000);
  EXPECT_EQ(json["steps"], 2345);
  EXPECT_EQ(json["state"], "done");
  EXPECT_EQ(json["samples_per_second"], 3001.6);
}

TEST(Report, TheModelTableAddsUp) {
  const auto table = model_table(*models::build({.name = "cnn"}, {{1, 28, 28}, 10}));
  EXPECT_THAT(table, HasSubstr("conv1"));
  EXPECT_THAT(table, HasSubstr("824,458"));
  EXPECT_THAT(table, HasSubstr("3.1 MiB"));
}

}  // namespace
}  // namespace lockstep::train
