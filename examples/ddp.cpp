// Your own torch::nn::Module on several ranks: each computes its share of every batch,
// and gradients are summed while the backward pass still runs. Start it with
// `lockstep launch --nproc-per-node 2 -- example_ddp`, with `torchrun --no-python`, or
// by itself. Prints the loss; expected: below 1 by step 30.
#include <iostream>

#include <torch/torch.h>

#include "lockstep/comm/join.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/open.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/engine.h"
#include "lockstep/parallel/update.h"

struct Net : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    return two->forward(torch::relu(one->forward(x.flatten(1))));
  }
  torch::nn::Linear one = register_module("one", torch::nn::Linear(784, 128));
  torch::nn::Linear two = register_module("two", torch::nn::Linear(128, 10));
};

int main() {
  using namespace lockstep;  // NOLINT(google-build-using-namespace): an example
  auto world = comm::join(run::detect(run::process_variables()), {});
  torch::set_num_threads(1);

  Net net;  // whatever its first weights are: all ranks get rank 0's
  parallel::Engine engine(net, world);
  const auto adamw = optim::make_optimizer({.lr = 3e-3}, engine.values(0));
  const auto images = data::open({.train_samples = 4096}, data::Split::train);
  data::Loader loader(
      *images, {.batch = 128, .rank = world.rank(), .ranks = world.size(), .seed = 1});

  for (int step = 1; step <= 30; ++step) {
    const auto& batch = *loader.next();
    const auto x = batch.inputs * images->spec().scale + images->spec().shift;
    // A sum over this rank's samples, divided by the number of all: gradients add up.
    const auto loss = torch::cross_entropy_loss(net.forward(x), batch.targets, {},
                                                at::Reduction::Sum) /
                      static_cast<double>(batch.global_size);
    engine.zero_gradients();
    loss.backward();
    parallel::update(engine, {*adamw, {.lr = 3e-3}});

    const auto whole = loss.detach().clone();
    world.data().all_reduce(whole).wait();
    if (step % 10 == 0 && world.rank() == 0) {
      std::cout << "step " << step << " loss " << whole.item<float>() << std::endl;
    }
  }
  world.close();
  return 0;
}
