// A loss and a metric of your own: the pinball loss, whose best answer is the value
// that nine of ten targets are below, and the share that really is. In the trainer's
// loop, cut by hand. By itself, or on several ranks with `lockstep launch
// --nproc-per-node 2 -- example_own_task`. Expected: a coverage of about 0.9.
#include <iostream>

#include "lockstep/api/fit.h"

using namespace lockstep;  // NOLINT(google-build-using-namespace): an example

constexpr double kQuantile = 0.9;

// A metric is sums over targets, which ranks add up, and a value of them.
class Coverage : public task::SumMetric {
  torch::Tensor sums_of(const task::Answers& answers) const override {
    const auto covered = (answers.targets <= answers.outputs).sum();
    return torch::stack({covered, torch::ones_like(answers.targets).sum()});
  }
  std::int64_t num_sums() const override { return 2; }
  std::vector<task::MetricValue> values_of(const torch::Tensor& sums) const override {
    return {{"coverage", (sums[0] / sums[1]).item<double>()}};
  }
};

class Quantile : public task::Task {
 public:
  std::string_view name() const noexcept override { return "quantile"; }
  const std::vector<task::LossSpec>& losses() const noexcept override {
    return losses_;
  }
  // The sum over the targets; the step divides by the number of all ranks' targets.
  task::Sums sums(const Named& outputs, const Named& batch,
                  const task::Pass& pass) const override {
    const auto error = batch.at("target") - outputs.at("output").squeeze(1);
    return {torch::max(kQuantile * error, (kQuantile - 1) * error).sum(pass.dtype)};
  }
  task::MetricSet metrics() const override {
    task::MetricList list;
    list.push_back(std::make_unique<Coverage>());
    task::MetricSet set;
    set.add(std::move(list), [](const Named& outputs, const Named& batch) {
      return task::Answers{outputs.at("output").squeeze(1), batch.at("target")};
    });
    return set;
  }

 private:
  std::vector<task::LossSpec> losses_{{.name = "pinball"}};
};

int main() {
  torch::manual_seed(1);
  const auto x = torch::rand({4096, 1});
  const auto y = (x + 0.5 * torch::randn_like(x)).squeeze(1);
  const std::shared_ptr<data::Dataset> samples =
      data::from_tensors({{"input", x}, {"target", y}});
  Trainer trainer(torch::nn::Linear(1, 1), {samples, samples},
                  {.knobs = {"train.epochs=5", "batch.global=64", "optim.lr=0.02",
                             "schedule.name=cosine"},
                   .task = std::make_shared<Quantile>()});
  while (!trainer.is_over()) {
    trainer.train_epoch();
    const auto means = trainer.validate();
    if (trainer.rank() == 0) {
      std::cout << "loss " << means.loss << " coverage "
                << means.find("coverage").value() << "\n";
    }
    trainer.save_checkpoint();
  }
  std::cout << trainer.finish().summary();
  return 0;
}
