// Several ranks from one call: this program starts itself once for each of them, and
// they train one model together, each on its share of every batch. Prints the loss;
// expected: below 1 by step 30.
#include "lockstep/launcher/spawn.h"

#include <iostream>

#include <torch/torch.h>

#include "lockstep/comm/join.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/open.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/engine.h"
#include "lockstep/parallel/update.h"

namespace {

void train(const lockstep::run::RankEnvironment& environment) {
  auto world = lockstep::comm::join(environment, {});
  torch::set_num_threads(1);
  torch::nn::Sequential model(torch::nn::Flatten(), torch::nn::Linear(784, 128),
                              torch::nn::ReLU(), torch::nn::Linear(128, 10));
  const auto images =
      lockstep::data::open({.train_samples = 4096}, lockstep::data::Split::train);
  lockstep::data::Loader loader(
      *images, {.batch = 128, .rank = world.rank(), .ranks = world.size(), .seed = 1});
  // Whatever its first weights are: all ranks get rank 0's.
  lockstep::parallel::Engine engine(*model, world);
  const auto adamw = lockstep::optim::make_optimizer({.lr = 3e-3}, engine.values(0));

  for (int step = 1; step <= 30; ++step) {
    const auto& batch = *loader.next();
    const auto x =
        batch.inputs.to(torch::kFloat32) * images->spec().scale + images->spec().shift;
    // A sum over this rank's samples, divided by the number of all: so gradients add
    // up.
    const auto loss = torch::cross_entropy_loss(model->forward(x), batch.targets, {},
                                                at::Reduction::Sum) /
                      static_cast<double>(batch.global_size);
    engine.zero_gradients();
    loss.backward();
    lockstep::parallel::update(engine, {*adamw, {.lr = 3e-3}});
    const auto whole = loss.detach().clone();
    world.data().all_reduce(whole).wait();
    if (step % 10 == 0 && world.rank() == 0) {
      std::cout << "step " << step << " loss " << whole.item<float>() << std::endl;
    }
  }
  world.close();
}

}  // namespace

int main() {
  return lockstep::launcher::spawn(2, train);
}
