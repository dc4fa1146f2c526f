// A module of your own in the whole trainer: planned for this machine, with metrics,
// evaluation, checkpoints and a run directory. By itself, or on several ranks with
// `lockstep launch --nproc-per-node 2 -- example_own_model`. Prints the accuracy;
// expected: above 0.7 after 100 steps.
#include <iostream>

#include "lockstep/api/fit.h"
#include "lockstep/data/open.h"

using namespace lockstep;  // NOLINT(google-build-using-namespace): an example

struct Net : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    return two->forward(torch::relu(one->forward(x.flatten(1))));
  }
  torch::nn::Linear one = register_module("one", torch::nn::Linear(784, 128));
  torch::nn::Linear two = register_module("two", torch::nn::Linear(128, 10));
};

int main() {
  const FitData images{data::open({}, data::Split::train),
                       data::open({}, data::Split::eval)};
  const auto history = fit(std::make_shared<Net>(), images,
                           {.knobs = {"train.steps=100", "optim.lr=2e-3"}});
  std::cout << history.summary();
  std::cout << "accuracy " << history.result.eval->find("accuracy").value() << "\n";
  return 0;
}
