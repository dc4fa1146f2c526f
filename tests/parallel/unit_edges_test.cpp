// Units that have little or nothing to gather, and optimizers that have nothing to do.
#include <array>

#include "tests/parallel/unit_rig.h"

namespace lockstep::test::units {
namespace {

// The roles of the units of an edge net.
enum class Edge { plain, without_parameters, all_frozen, empty };

struct EdgeUnitImpl : torch::nn::Module {
  explicit EdgeUnitImpl(Edge its_edge) : edge(its_edge) {
    if (edge == Edge::empty) {
      none = register_parameter("none", torch::zeros({0, kIn}));
    } else if (edge != Edge::without_parameters) {
      layer = register_module("layer", torch::nn::Linear(kIn, kIn));
      for (auto& p : layer->parameters()) p.requires_grad_(edge != Edge::all_frozen);
    }
  }
  Tensor forward(const Tensor& x) {
    if (edge == Edge::empty) return x + none.sum();
    return torch::tanh(layer ? x + layer->forward(x) : x);
  }
  const Edge edge;
  torch::nn::Linear layer{nullptr};
  Tensor none;
};
TORCH_MODULE(EdgeUnit);

// Where the trained parameters are: in a unit, or in the root only.
template <Edge... kEdges>
struct EdgeNetImpl : torch::nn::Module {
  EdgeNetImpl() {
    for (const auto edge : {kEdges...}) {
      parts.push_back(
          register_module(::lockstep::str("unit", parts.size()), EdgeUnit(edge)));
    }
    last = register_module("last", torch::nn::Linear(kIn, kOut));
  }
  // The first unit's input needs no gradient.
  Tensor forward(const Tensor& x, Engine* engine) {
    auto h = x;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      h = engine->run_unit(
          i, [&](const Tensor& in) { return parts[i]->forward(in); }, h);
    }
    return last->forward(h);
  }
  std::vector<const torch::nn::Module*> units() const {
    std::vector<const torch::nn::Module*> all;
    for (const auto& part : parts) all.push_back(&*part);
    return all;
  }
  std::vector<EdgeUnit> parts;
  torch::nn::Linear last{nullptr};
};
using MixedEdgesImpl = EdgeNetImpl<Edge::all_frozen, Edge::without_parameters,
                                   Edge::plain, Edge::empty, Edge::all_frozen>;
using FrozenEdgesImpl = EdgeNetImpl<Edge::all_frozen, Edge::all_frozen>;
using EmptyEdgesImpl = EdgeNetImpl<Edge::empty, Edge::without_parameters>;
TORCH_MODULE(MixedEdges);
TORCH_MODULE(FrozenEdges);
TORCH_MODULE(EmptyEdges);

template <typename Net>
void expect_bits_of_ddp(Communicator& c) {
  using Trained = TrainedNet<Net>;
  const auto x = make_inputs(11);
  Trained whole(c, 0);
  const auto before = whole.parameters();
  for (int step = 0; step < 4; ++step) whole.step(share(c, x));
  for (const int stage : {1, 2, 3}) {
    for (const std::size_t ahead : {0, 2}) {
      Trained sharded(c, stage, [&](EngineOptions& o) { o.prefetch_units = ahead; });
      for (int step = 0; step < 4; ++step) sharded.step(share(c, x));
      expect_same(whole, sharded, ::lockstep::str("at stage ", stage));
    }
  }
  for (const auto& [name, tensor] : whole.parameters()) {
    const bool trained = name.starts_with("last") ||
                         (std::is_same_v<Net, MixedEdges> && name.starts_with("unit2"));
    EXPECT_EQ(torch::equal(tensor, before.at(name)), !trained) << name;
  }
}

// Options by which a group of the optimizer has no parameter: nothing decays, or all
// of it does.
void expect_empty_groups_change_nothing(Communicator& c, int stage) {
  std::array<std::map<std::string, Tensor>, 3> ends;
  for (std::size_t way = 0; way < ends.size(); ++way) {
    TrainedNet<MixedEdges> trained(c, stage);
    config::OptimConfig optim;
    optim.weight_decay = way == 0 ? 0 : 0.1;
    optim.no_decay = way == 1 ? "*" : "none";
    parallel::detail::FlatOptimizers grouped({optim, {}}, trained.engine, c);
    for (int step = 0; step < 3; ++step) {
      trained.engine.zero_gradients();
      trained.loss(share(c, make_inputs(11))).backward();
      trained.engine.finish();
      grouped.step({.lr = 0.01});
    }
    ends[way] = trained.parameters();
  }
  for (const auto& [name, tensor] : ends[0]) {
    EXPECT_TRUE(torch::equal(ends[1].at(name), tensor)) << name << ": nothing decays";
  }
  EXPECT_FALSE(torch::equal(ends[2].at("last.weight"), ends[0].at("last.weight")));
}

}  // namespace

class UnitEdges : public RanksTest {};
INSTANTIATE_TEST_SUITE_P(Ranks, UnitEdges,
                         ::testing::Values(std::tuple(Rig::local, 3),
                                           std::tuple(Rig::gloo_processes, 2),
                                           std::tuple(Rig::shm_processes, 3)),
                         name_of_ranks);

TEST_P(UnitEdges, FrozenEmptyAndBareUnitsHaveTheBitsOfDdp) {
  on_ranks([](Communicator& c) {
    expect_bits_of_ddp<MixedEdges>(c);
    expect_bits_of_ddp<FrozenEdges>(c);
    expect_bits_of_ddp<EmptyEdges>(c);
  });
}

TEST_P(UnitEdges, AGroupWithoutParametersIsNone) {
  on_ranks([](Communicator& c) {
    for (const int stage : {0, 1, 2, 3}) expect_empty_groups_change_nothing(c, stage);
  });
}

}  // namespace lockstep::test::units
