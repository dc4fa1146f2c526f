// A module of your own of which each rank holds a shard (ZeRO-3): the parameters of a
// block are gathered before it computes and freed after it, forward and backward. This
// program starts itself once for each rank. Prints the loss, and the share of the
// parameters that was whole at a time; expected: a loss below 1 by step 30.
#include <iostream>

#include <torch/torch.h>

#include "lockstep/comm/join.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/open.h"
#include "lockstep/launcher/spawn.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/engine.h"
#include "lockstep/parallel/update.h"

using namespace lockstep;  // NOLINT(google-build-using-namespace): an example

struct Net : torch::nn::Module {
  Net() {
    for (int i = 0; i < 8; ++i) {
      blocks.push_back(register_module(str("block", i), torch::nn::Linear(128, 128)));
    }
  }
  torch::Tensor forward(const torch::Tensor& x, parallel::Engine& engine) {
    auto h = in->forward(x.flatten(1));
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const auto block = [&](const torch::Tensor& to) {
        return to + torch::relu(blocks[i]->forward(to));
      };
      h = engine.run_unit(i, block, h);
    }
    return out->forward(h);
  }
  torch::nn::Linear in = register_module("in", torch::nn::Linear(784, 128));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(128, 10));
  std::vector<torch::nn::Linear> blocks;
};

void train(const run::RankEnvironment& environment) {
  auto world = comm::join(environment, {});
  torch::set_num_threads(1);
  Net net;
  parallel::EngineOptions options{.stage = parallel::kStages[3]};
  for (const auto& block : net.blocks) options.units.push_back(&*block);
  parallel::Engine engine(net, world, options);
  std::vector<std::unique_ptr<optim::Optimizer>> adamw;  // of each piece of the shard
  for (std::size_t i = 0; i < engine.owned().size(); ++i) {
    adamw.push_back(optim::make_optimizer({.lr = 1e-3}, engine.owned_values(i)));
  }
  const auto images = data::open({.train_samples = 4096}, data::Split::train);
  data::Loader loader(
      *images, {.batch = 128, .rank = world.rank(), .ranks = world.size(), .seed = 1});

  torch::Tensor loss;
  for (int step = 1; step <= 30; ++step) {
    const auto& batch = *loader.next();
    const auto x = batch.inputs * images->spec().scale + images->spec().shift;
    engine.zero_gradients();
    engine.forward([&] {
      loss = torch::cross_entropy_loss(net.forward(x, engine), batch.targets, {},
                                       at::Reduction::Sum) /
             static_cast<double>(batch.global_size);
    });
    loss.backward();
    engine.finish();
    for (std::size_t i = 0; i < adamw.size(); ++i) {
      parallel::update(engine, {*adamw[i], {.lr = 1e-3}, i});
    }
    const auto whole = loss.detach().clone();
    world.data().all_reduce(whole).wait();
    if (step % 10 == 0 && world.rank() == 0) {
      std::cout << "step " << step << " loss " << whole.item<float>() << ", "
                << engine.peak_gathered_bytes() / 1024 << " KiB whole at a time"
                << std::endl;
    }
  }
  world.close();
}

int main() {
  return launcher::spawn(2, train);
}
