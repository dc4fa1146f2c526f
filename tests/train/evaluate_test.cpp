#include "lockstep/train/evaluate.h"

#include <cmath>

#include <signal.h>

#include "lockstep/base/log.h"
#include "lockstep/data/open.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/train/early_stop.h"
#include "lockstep/train/shared.h"
#include "lockstep/train/stop.h"
#include "tests/support/support.h"
#include "tests/train/small_data.h"

namespace lockstep::train {
namespace {

std::optional<task::Means> evaluate_alone(models::Model& model,
                                          const data::Dataset& data,
                                          const config::Config& config,
                                          const StopRequest& stop) {
  auto world = comm::join({}, {});
  const precision::Policy policy{config::Precision::fp32, torch::kCPU};
  const auto task = test::task_for(data.spec());
  return evaluate(
      model, data,
      {.loader = data::eval_options(config, {}),
       .batch = config.batch.eval.value(),
       .retries = config.memory.on_out_of_memory == config::OnOutOfMemory::retry,
       .policy = policy,
       .world = world,
       .task = *task,
       .ballot = [&] {
         const int signal = stop.signal();
         return comm::Ballot{signal != 0 ? comm::kStop : comm::Flags{0}, signal};
       }});
}

TEST(Evaluate, CountsEverySampleOnceWhateverTheBatch) {
  const test::SmallImages data(53);
  torch::manual_seed(1);
  const auto model =
      models::build({.name = "mlp", .hidden = 16}, {data.spec().shape, 4});
  const StopRequest stop;
  auto config = test::small_config();
  std::vector<task::Means> all;
  for (const std::int64_t batch : {1, 7, 53, 100}) {
    config.batch.eval = batch;
    all.push_back(*evaluate_alone(*model, data, config, stop));
    EXPECT_EQ(all.back().count, 53);
    EXPECT_EQ(all.back().find("accuracy"), all.front().find("accuracy"));
    EXPECT_NEAR(all.back().loss, all.front().loss, 1e-5);
  }
}

TEST(Evaluate, TurnsDropoutOffAndTrainingModeOnAgain) {
  const test::SmallImages data(16);
  const auto model = models::build({.name = "mlp", .hidden = 64, .dropout = 0.9},
                                   {data.spec().shape, 4});
  const StopRequest stop;
  const auto config = test::small_config();
  const auto once = evaluate_alone(*model, data, config, stop);
  EXPECT_EQ(once->loss, evaluate_alone(*model, data, config, stop)->loss);
  EXPECT_TRUE(model->is_training());
}

// Every target is ignored: a loss of 0 would be the best that was ever seen.
TEST(Evaluate, WithoutAnyTargetThatCountsThereIsNothingToMeasure) {
  class Unlabelled : public test::SmallImages {
   public:
    Unlabelled() : SmallImages(16), own_(SmallImages::spec()) {
      own_.ignore_index = -1;
    }
    const data::SampleSpec& spec() const noexcept override { return own_; }
    std::int64_t read(std::int64_t index, std::span<std::byte> input) const override {
      SmallImages::read(index, input);
      return -1;
    }

   private:
    data::SampleSpec own_;
  };
  const Unlabelled data;
  const auto model =
      models::build({.name = "mlp", .hidden = 16}, {data.spec().shape, 4});
  std::vector<std::string> lines;
  log::start(
      {.writer = [&](log::Level, std::string_view line) { lines.emplace_back(line); }});
  const StopRequest stop;
  const auto means = evaluate_alone(*model, data, test::small_config(), stop);
  log::start({});
  ASSERT_TRUE(means);
  EXPECT_TRUE(std::isnan(means->loss));
  EXPECT_TRUE(std::isnan(means->find("accuracy").value()));
  EXPECT_THAT(lines, testing::Contains(testing::HasSubstr("loss, accuracy: NaN")));
  EarlyStop watcher({}, {"loss", task::Better::less});
  EXPECT_FALSE(watcher.observe(*means));
  EXPECT_FALSE(watcher.watched(*means));
}

// Targets are looked at before they get to a device, and as section `task` says.
TEST(OpenShared, TargetsOfARunAreCheckedUnlessItsTaskIsTheProgramsOwn) {
  const std::shared_ptr<const data::Dataset> rows =
      data::from_tensors({{"input", torch::zeros({4, 2})},
                          {"target", torch::tensor({0, 1, -100, 1}, torch::kInt64)}});
  auto config = test::small_config();
  RunHooks hooks{.train_data = rows, .eval_data = rows};
  const auto read_all = [](const data::Dataset& samples) {
    data::Loader loader(samples, {.batch = 4, .epochs = 1});
    loader.next();
  };
  const auto plain = open_shared(config, hooks);
  for (const auto& part : {plain->train_data, plain->eval_data}) {
    EXPECT_THAT(test::error_text(Fault::config, [&] { read_all(*part); }),
                testing::HasSubstr("sample 2 has the label -100"));
  }
  config.task.ignore_index = -100;
  const auto ignores = open_shared(config, hooks);
  EXPECT_EQ(ignores->train_data->spec().ignore_index, -100);
  EXPECT_NO_THROW(read_all(*ignores->train_data));
  hooks.task = test::task_for(rows->spec());
  EXPECT_TRUE(open_shared(test::small_config(), hooks)->train_data == rows);
}

TEST(Evaluate, EndsWhenAskedToStop) {
  const test::SmallImages data(16);
  const auto model =
      models::build({.name = "mlp", .hidden = 16}, {data.spec().shape, 4});
  const StopRequest stop;
  ::raise(SIGTERM);
  EXPECT_FALSE(evaluate_alone(*model, data, test::small_config(), stop));
}

}  // namespace
}  // namespace lockstep::train
