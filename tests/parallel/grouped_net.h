#pragma once

#include <map>
#include <string>

#include "tests/parallel/unit_rig.h"

// A net that is trained with its shards in groups of ranks.
namespace lockstep::test::units {

// Two blocks, parameters of none, and some that are not trained: too many for a bucket.
struct GroupedNetImpl : torch::nn::Module {
  GroupedNetImpl() {
    one = register_module("one", torch::nn::Linear(kIn, kWide));
    two = register_module("two", torch::nn::Linear(kWide, kOut));
    still = register_module("still", torch::nn::Linear(kWide, kWide));
    const auto held = register_module("held", torch::nn::Linear(kWide, kWide));
    for (auto& parameter : held->parameters()) parameter.requires_grad_(false);
    turned = register_parameter("turned", torch::randn({kWide, kWide}).t());
    for (auto& parameter : still->parameters()) parameter.requires_grad_(false);
  }
  Tensor forward(const Tensor& x, Engine* engine) {
    const auto first = [&](const Tensor& in) {
      return torch::tanh(still->forward(one->forward(in)));
    };
    const auto second = [&](const Tensor& in) { return two->forward(in); };
    if (engine == nullptr) return second(torch::mm(first(x), turned));
    const auto h = engine->run_unit(0, first, x);
    return engine->run_unit(1, second, torch::mm(h, turned));
  }
  std::vector<const torch::nn::Module*> units() const { return {&*one, &*two}; }
  torch::nn::Linear one{nullptr}, two{nullptr}, still{nullptr};
  Tensor turned;
};
TORCH_MODULE(GroupedNet);

// As a strategy trains it, with clipping and an average.
struct InGroups {
  InGroups(Communicator& c, int stage, int group, const Change& change = {})
      : InGroups({c, c}, stage, group, change) {}
  InGroups(const parallel::Communicators& ranks, int stage, int group,
           const Change& change = {})
      : data(ranks.data),
        net(TrainedNet<GroupedNet>::on_device(ranks.data)),
        engine(*net, ranks, options_of(stage, group, net, change)),
        optimizers({clipped(), averaged()}, engine, ranks.data) {}

  static config::OptimConfig clipped() {
    config::OptimConfig optim;
    optim.clip_norm = 0.05;  // less than the gradients of these nets have
    return optim;
  }
  static config::EmaConfig averaged() {
    config::EmaConfig ema;
    ema.enabled = true;
    return ema;
  }
  static EngineOptions options_of(int stage, int group, const GroupedNet& net,
                                  const Change& change) {
    auto options = TrainedNet<GroupedNet>::options_of(stage, net, change);
    options.shard_group = group;
    options.deterministic = true;
    return options;
  }

  Tensor loss(const Tensor& x) {
    Tensor sum;
    engine.forward([&] { sum = net->forward(x, &engine).pow(2).sum() / 12; });
    return sum;
  }
  void pass(const Tensor& x) {
    engine.zero_gradients();
    if (x.size(0) > 0) loss(x).backward();
    engine.finish();
  }
  void step(const Tensor& x) {
    pass(x);
    optimizers.step({.lr = 0.01});
  }
  std::map<std::string, Tensor> parameters() {
    std::map<std::string, Tensor> all;
    for (const auto& item : net->named_parameters()) {
      all[item.key()] = engine.full_parameter(item.value()).clone();
    }
    return all;
  }

  Communicator& data;
  GroupedNet net;
  Engine engine;
  parallel::detail::FlatOptimizers optimizers;
};

// Every rank has computed the same, whichever group it is of.
inline void expect_alike_on_all(InGroups& trained, const std::string& when) {
  for (const auto& [name, tensor] : trained.parameters()) {
    const auto own = tensor.contiguous().flatten();
    const auto all = torch::empty({trained.data.size() * own.numel()}, own.options());
    trained.data.all_gather(all, own).wait();
    for (int r = 0; r < trained.data.size(); ++r) {
      EXPECT_TRUE(torch::equal(all.narrow(0, r * own.numel(), own.numel()), own))
          << name << " of rank " << r << " " << when;
    }
  }
}

// Sums in float32 in another order, through a few updates of AdamW.
inline void expect_near_parameters(InGroups& one, InGroups& other,
                                   const std::string& when) {
  const auto theirs = other.parameters();
  for (const auto& [name, tensor] : one.parameters()) {
    EXPECT_TRUE(torch::allclose(tensor, theirs.at(name), 1e-4, 1e-5))
        << name << " " << when;
  }
}

}  // namespace lockstep::test::units
