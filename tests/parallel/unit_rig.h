#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "lockstep/parallel/detail/flat_optimizers.h"
#include "tests/comm/ranks.h"
#include "tests/parallel/odd_net.h"

// Nets of units that are trained at any stage, for tests of stage 3.
namespace lockstep::test::units {

inline constexpr std::int64_t kWide = 7;  // nothing divides evenly

// Makes a net whose values follow from the seed, also where ranks are threads.
template <typename Net, typename... Arguments>
Net make_seeded(int seed, Arguments... arguments) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  auto generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(static_cast<std::uint64_t>(seed));
  return Net(arguments...);
}

using Change = std::function<void(EngineOptions&)>;

// A net that is trained as a strategy does it. The net has forward(x, engine, ...) and
// units().
template <typename Net>
struct TrainedNet {
  TrainedNet(Communicator& c, int stage, const Change& change = {})
      : TrainedNet({c, c}, stage, change) {}
  TrainedNet(const parallel::Communicators& ranks, int stage, const Change& change = {})
      : net(on_device(ranks.data)),
        engine(*net, ranks, options_of(stage, net, change)),
        optimizers({}, engine, ranks.data) {}

  static Net on_device(const Communicator& c) {
    auto net = make_seeded<Net>(5 + c.rank());  // the engine makes them alike
    net->to(c.device());
    return net;
  }

  static EngineOptions options_of(int stage, const Net& net, const Change& change) {
    EngineOptions options;
    options.stage = parallel::kStages[static_cast<std::size_t>(stage)];
    options.layout.first_bucket_bytes = 150;
    options.layout.bucket_bytes = 300;
    options.units = net->units();
    if (change) change(options);
    return options;
  }

  template <typename... How>
  Tensor loss(const Tensor& x, const How&... how) {
    Tensor sum;
    engine.forward([&] { sum = net->forward(x, &engine, how...).pow(2).sum() / 12; });
    return sum;
  }
  template <typename... How>
  void step(const Tensor& x, const How&... how) {
    engine.zero_gradients();
    if (x.size(0) > 0) loss(x, how...).backward();
    engine.finish();
    optimizers.step({.lr = 0.01});
  }
  std::map<std::string, Tensor> parameters() {
    std::map<std::string, Tensor> all;
    for (const auto& item : net->named_parameters()) {
      all[item.key()] = engine.full_parameter(item.value()).clone();
    }
    return all;
  }

  Net net;
  Engine engine;
  parallel::detail::FlatOptimizers optimizers;
};

template <typename Trained>
void expect_same(Trained& one, Trained& other, const std::string& when) {
  const auto theirs = other.parameters();
  for (const auto& [name, tensor] : one.parameters()) {
    EXPECT_TRUE(torch::equal(tensor, theirs.at(name))) << name << " " << when;
  }
}

inline Tensor make_inputs(std::int64_t size) {
  return torch::randn({size, kIn}, at::detail::createCPUGenerator(3));
}

inline Tensor share(const Communicator& c, const Tensor& x) {
  const auto [begin, end] = even_share(c, x.size(0));
  return x.narrow(0, begin, end - begin);
}

}  // namespace lockstep::test::units
