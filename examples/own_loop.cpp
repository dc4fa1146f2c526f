// A training loop of your own around a plain torch::nn::Module: Lockstep reads ahead,
// shuffles and updates the weights in one fused operation. Prints the loss; expected:
// below 1 by step 30.
#include <iostream>

#include <torch/torch.h>

#include "lockstep/comm/join.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/open.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/engine.h"
#include "lockstep/parallel/update.h"

int main() {
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Flatten(), torch::nn::Linear(784, 128),
                              torch::nn::ReLU(), torch::nn::Linear(128, 10));

  const auto images =
      lockstep::data::open({.train_samples = 4096}, lockstep::data::Split::train);
  lockstep::data::Loader loader(*images, {.batch = 128, .workers = 1, .seed = 1});
  auto world = lockstep::comm::join({}, {});  // of one rank
  lockstep::parallel::Engine engine(*model, world);
  const auto adamw = lockstep::optim::make_optimizer({.lr = 3e-3}, engine.values(0));

  for (int step = 1; step <= 30; ++step) {
    const auto& batch = *loader.next();
    const auto x =
        batch.inputs.to(torch::kFloat32) * images->spec().scale + images->spec().shift;
    const auto loss = torch::cross_entropy_loss(model->forward(x), batch.targets);
    engine.zero_gradients();
    loss.backward();
    lockstep::parallel::update(engine, {*adamw, {.lr = 3e-3}});
    if (step % 10 == 0)
      std::cout << "step " << step << " loss " << loss.item<float>() << "\n";
  }
  return 0;
}
