#include "lockstep/train/evaluate.h"

#include <signal.h>

#include "tests/support/support.h"
#include "tests/train/small_data.h"

namespace lockstep::train {
namespace {

std::optional<Means> evaluate_alone(models::Model& model, const data::Dataset& data,
                                    const config::Config& config,
                                    const StopRequest& stop) {
  auto world = comm::join({}, {});
  const precision::Policy policy{config::Precision::fp32, torch::kCPU};
  const auto task = test::task_for(data.spec());
  return evaluate(
      model, data,
      {.config = config,
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
  std::vector<Means> all;
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
