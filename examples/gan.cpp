// Two models and two optimizers in one loop: a generator learns to draw numbers like
// the real ones, a critic to tell them apart. The generator's backward pass goes
// through the critic, whose gradients are held back meanwhile (no_sync): they are none
// that anybody wants, and nothing of them travels. Start it as example_ddp. Prints the
// mean that is drawn; expected: near 4.
#include <iostream>

#include <torch/torch.h>

#include "lockstep/comm/join.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/engine.h"
#include "lockstep/parallel/update.h"

using namespace lockstep;  // NOLINT(google-build-using-namespace): an example
namespace nn = torch::nn;

// A model with what trains it.
struct Player {
  Player(std::int64_t in, comm::World& world)
      : net(nn::Linear(in, 32), nn::ReLU(), nn::Linear(32, 1)),
        engine(*net, world),
        adam(optim::make_optimizer({.lr = 2e-3, .beta1 = 0.5}, engine.values(0))) {}

  void update() { parallel::update(engine, {*adam, {.lr = 2e-3}}); }

  nn::Sequential net;
  parallel::Engine engine;
  std::unique_ptr<optim::Optimizer> adam;
};

int main() {
  auto world = comm::join(run::detect(run::process_variables()), {});
  torch::set_num_threads(1);
  torch::manual_seed(1 + world.rank());  // each rank draws its own
  Player generator(4, world), critic(1, world);
  constexpr std::int64_t kBatch = 64;  // of each rank
  // The gradients of all ranks add up: a mean over all samples.
  const double share = 1.0 / world.size();
  const auto believed = [&](const torch::Tensor& samples, double wanted) {
    const auto scores = critic.net->forward(samples);
    return share * torch::binary_cross_entropy_with_logits(
                       scores, torch::full_like(scores, wanted));
  };

  for (int step = 1; step <= 1500; ++step) {
    const auto real = 4 + 0.5 * torch::randn({kBatch, 1});
    const auto fake = generator.net->forward(torch::randn({kBatch, 4}));

    critic.engine.zero_gradients();
    (believed(real, 1) + believed(fake.detach(), 0)).backward();
    critic.update();

    generator.engine.zero_gradients();
    {
      const auto held = critic.engine.no_sync();
      believed(fake, 1).backward();
    }
    generator.update();
  }
  const torch::NoGradGuard no_grad;
  const auto mean = generator.net->forward(torch::randn({4096, 4})).mean();
  if (world.rank() == 0) std::cout << "mean " << mean.item<float>() << std::endl;
  world.close();
  return 0;
}
