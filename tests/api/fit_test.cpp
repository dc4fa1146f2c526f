// The trainer as people write it.
#include "lockstep/api/fit.h"

#include <cstdlib>

#include "lockstep/monitor/metrics.h"
#include "lockstep/storage/catalog.h"
#include "tests/comm/ranks.h"
#include "tests/support/support.h"
#include "tests/train/small_data.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct FitNet : torch::nn::Module {
  FitNet() {
    one = register_module("one", torch::nn::Linear(64, 16));
    norm = register_module("norm", torch::nn::BatchNorm1d(16));
    two = register_module("two", torch::nn::Linear(16, 4));
    scale = register_parameter("scale", torch::ones({4}));
    register_buffer("calls", torch::zeros({}));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    was_training = is_training();
    return two(norm(one(x.flatten(1))).relu()) * scale;
  }
  torch::nn::Linear one{nullptr}, two{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::Tensor scale;
  bool was_training = false;
};

FitData fit_images() {
  return {std::make_shared<test::SmallImages>(96),
          std::make_shared<test::SmallImages>(40)};
}

FitOptions fit_options(const files::Path& folder,
                       const std::vector<std::string>& more = {}) {
  FitOptions options{.knobs = {"run.dir=" + folder.string(), "run.name=r",
                               "batch.global=16", "optim.lr=0.01",
                               "monitor.verbosity=quiet", "parallel.threads=1",
                               "parallel.device=cpu", "train.log_every=1"}};
  options.knobs.insert(options.knobs.end(), more.begin(), more.end());
  return options;
}

std::shared_ptr<FitNet> fresh_net() {
  torch::manual_seed(5);
  return std::make_shared<FitNet>();
}

std::vector<double> fit_losses(const std::vector<History::Point>& entries) {
  std::vector<double> losses;
  for (const auto& entry : entries) losses.push_back(entry.means.loss);
  return losses;
}

TEST(Fit, TrainsAModuleAndTellsWhatCameOfIt) {
  const files::TemporaryDirectory folder;
  const auto net = fresh_net();
  const auto history =
      fit(net, fit_images(), fit_options(folder.path(), {"train.epochs=10"}));
  EXPECT_EQ(history.result.steps, 60);
  ASSERT_EQ(history.train.size(), 60U);
  EXPECT_LT(history.train.back().means.loss, 0.5 * history.train.front().means.loss);
  EXPECT_GT(history.result.eval->find("accuracy"), 0.9);
  EXPECT_EQ(history.eval.back().step, 60);
  EXPECT_THAT(history.summary(), HasSubstr("test accuracy"));
  EXPECT_THAT(history.summary(), HasSubstr("took at most"));
  EXPECT_EQ(history.run, folder.path() / "r");
  const auto run = run::RunDirectory::open(history.run);
  EXPECT_EQ(run.read_record().state, run::RunStatus::done);
  EXPECT_TRUE(std::filesystem::exists(run.path() / "model.safetensors"));
  EXPECT_FALSE(net->was_training) << "the module itself is told";
}

TEST(Fit, NamesAreThoseOfTheModule) {
  const auto net = fresh_net();
  const auto model = models::adapt(net);
  EXPECT_EQ(model->named_parameters().keys(), net->named_parameters().keys());
  EXPECT_EQ(model->named_buffers().keys(), net->named_buffers().keys());
  torch::nn::Sequential layers(torch::nn::Linear(3, 2));
  EXPECT_THAT(models::adapt(layers)->named_parameters().keys(),
              ElementsAre("0.weight", "0.bias"));
}

TEST(Fit, ALoopOfOnesOwnComesToTheSame) {
  const files::TemporaryDirectory one, other;
  const auto all =
      fit(fresh_net(), fit_images(), fit_options(one.path(), {"train.epochs=3"}));
  Trainer trainer(fresh_net(), fit_images(),
                  fit_options(other.path(), {"train.epochs=3"}));
  std::vector<double> seen;
  while (!trainer.is_over()) {
    trainer.train_epoch();
    seen.push_back(trainer.validate().loss);
  }
  const auto history = trainer.finish();
  EXPECT_EQ(fit_losses(history.train), fit_losses(all.train));
  EXPECT_EQ(seen.size(), 3U);
  EXPECT_EQ(seen.back(), all.result.eval->loss);
}

TEST(Fit, ARunThatWasLeftGoesOnFromItsCheckpoint) {
  const files::TemporaryDirectory one, other;
  const auto all =
      fit(fresh_net(), fit_images(), fit_options(one.path(), {"train.steps=10"}));
  {
    Trainer trainer(fresh_net(), fit_images(),
                    fit_options(other.path(), {"train.steps=10"}));
    trainer.train_steps(4);
    EXPECT_THAT(trainer.save_checkpoint(), HasSubstr("step_"));
    trainer.train_steps(2);  // lost
  }
  const auto record = run::RunDirectory::open(other.path() / "r").read_record();
  EXPECT_EQ(record.state, run::RunStatus::failed);
  const auto history =
      fit(fresh_net(), fit_images(), fit_options(other.path(), {"train.steps=10"}));
  EXPECT_EQ(history.result.resumed_at, 4);
  auto expected = fit_losses(all.train);
  expected.erase(expected.begin(), expected.begin() + 4);
  EXPECT_EQ(fit_losses(history.train), expected);
}

TEST(Fit, TensorsAreADataSet) {
  const files::TemporaryDirectory folder;
  torch::manual_seed(2);
  const auto x = torch::randn({64, 3});
  const auto y = x.sum(1, /*keepdim=*/true) * 2 + 1;
  const std::shared_ptr<data::Dataset> data =
      data::from_tensors({{"input", x}, {"target", y}});
  const auto history =
      fit(torch::nn::Sequential(torch::nn::Linear(3, 1)), {data, data},
          fit_options(folder.path(), {"train.epochs=60", "optim.lr=0.05"}));
  EXPECT_EQ(history.result.primary, "rmse");
  EXPECT_LT(history.result.eval->find("rmse"), 0.05);
  EXPECT_THAT(test::error_text(
                  Fault::config,
                  [&] {
                    data::from_tensors({{"input", x}, {"target", y.narrow(0, 0, 5)}});
                  }),
              HasSubstr("'target' has the shape [5, 1], but there are 64 samples"));
}

TEST(Fit, RanksOfALauncherShareTheRun) {
  const files::TemporaryDirectory folder;
  const int port = test::free_port();
  test::as_processes(2, [&](int rank) {
    for (const auto& [name, value] :
         {std::pair<std::string, std::string>{"RANK", std::to_string(rank)},
          {"LOCAL_RANK", std::to_string(rank)},
          {"WORLD_SIZE", "2"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(port)}}) {
      ::setenv(name.c_str(), value.c_str(), 1);
    }
    const auto history = fit(std::make_shared<FitNet>(), fit_images(),
                             fit_options(folder.path(), {"train.steps=6"}));
    EXPECT_EQ(history.result.steps, 6);
    EXPECT_EQ(history.train.size(), 6U) << "every rank has the numbers of all";
  });
  const auto run = run::RunDirectory::open(folder.path() / "r");
  EXPECT_EQ(run.read_record().state, run::RunStatus::done);
}

TEST(Fit, VariablesOfTheEnvironmentAreKnobsThatTypedOnesBeat) {
  const files::TemporaryDirectory folder;
  test::as_processes(1, [&](int) {
    ::setenv("LOCKSTEP_TRAIN_STEPS", "3", 1);
    ::setenv("LOCKSTEP_BATCH_GLOBAL", "5", 1);
    const auto history = fit(fresh_net(), fit_images(), fit_options(folder.path()));
    EXPECT_EQ(history.result.steps, 3);
    EXPECT_EQ(history.result.samples, 3 * 16) << "batch.global is typed";
  });
}

TEST(Fit, AKnobThatIsWrongIsNamed) {
  const files::TemporaryDirectory folder;
  EXPECT_THAT(test::error_text(Fault::config,
                               [&] {
                                 fit(fresh_net(), fit_images(),
                                     fit_options(folder.path(), {"optim.rl=1"}));
                               }),
              HasSubstr("optim.rl"));
}

}  // namespace
}  // namespace lockstep
