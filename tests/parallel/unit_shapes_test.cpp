// Units of any shape (inside of each other, used twice, frozen, sharing a weight) are
// trained to the bits of whole parameters, at every stage.
#include <random>

#include "lockstep/parallel/detail/unit_plan.h"
#include "tests/parallel/unit_rig.h"

namespace lockstep::test::units {

using ::testing::ElementsAre;

namespace {

// A layer with units inside of it, or none; its own weights are used before and after
// them.
struct NodeImpl : torch::nn::Module {
  NodeImpl(std::int64_t hidden, bool trains_weight, bool trains_bias) {
    in = register_module("in", torch::nn::Linear(kWide, hidden));
    out = register_module("out", torch::nn::Linear(hidden, kWide));
    empty = register_parameter("empty", torch::zeros({0}));
    for (auto* const layer : {&in, &out}) {
      (*layer)->weight.requires_grad_(trains_weight);
      (*layer)->bias.requires_grad_(trains_bias);
    }
  }
  Tensor forward(const Tensor& x, const std::function<Tensor(const Tensor&)>& inside) {
    const auto h = inside(torch::tanh(out->forward(torch::relu(in->forward(x)))));
    const auto y =
        torch::linear(torch::tanh(torch::linear(h, in->weight)), out->weight);
    const auto sum = x + y + empty.sum();
    return shared.defined() ? sum + shared : sum;
  }
  void share(const Tensor& bias) {
    shared = register_parameter("shared", bias, bias.requires_grad());
  }
  torch::nn::Linear in{nullptr}, out{nullptr};
  Tensor empty, shared;
};
TORCH_MODULE(Node);

// Places of a forward pass: which node, and the places inside of it.
struct Use {
  std::size_t node = 0;
  std::vector<Use> inside = {};
};

// A net whose shape is drawn from a seed.
struct DrawnNetImpl : torch::nn::Module {
  DrawnNetImpl() : DrawnNetImpl(0) {}
  explicit DrawnNetImpl(unsigned seed) {
    std::mt19937 draw(seed);
    first = register_parameter("first", torch::randn({kIn, kWide}).mul_(0.3));
    const auto length = 2 + draw() % 3;
    for (std::size_t i = 0; i < length; ++i) {
      uses.push_back({add_node(draw)});
      for (auto inner = draw() % 3; inner > 0; --inner) {
        uses.back().inside.push_back({add_node(draw, nodes[uses.back().node])});
      }
    }
    if (draw() % 2 == 0) uses.push_back(uses[draw() % uses.size()]);
    if (draw() % 2 == 0) tie(draw);
  }

  std::size_t add_node(std::mt19937& draw, Node outer = nullptr) {
    const auto frozen = draw() % 4;
    Node node(1 + draw() % 9, frozen != 0, frozen > 1);
    auto& owner = outer ? static_cast<torch::nn::Module&>(*outer) : *this;
    owner.register_module(::lockstep::str("node", nodes.size()), node);
    nodes.push_back(node);
    return nodes.size() - 1;
  }

  // Two nodes, beside each other or not, use one weight.
  void tie(std::mt19937& draw) {
    const auto& one = nodes[draw() % nodes.size()];
    auto& other = nodes[draw() % nodes.size()];
    if (&one != &other) other->share(one->out->bias);
  }

  Tensor run(const std::vector<Use>& list, Tensor h, Engine* engine) {
    for (const auto& use : list) {
      const auto place = next++;
      const auto compute = [&](const Tensor& x) {
        return nodes[use.node]->forward(
            x, [&](const Tensor& y) { return run(use.inside, y, engine); });
      };
      h = engine->run_unit(place, compute, h);
    }
    return h;
  }

  Tensor forward(const Tensor& x, Engine* engine) {
    next = 0;
    return torch::mm(run(uses, torch::mm(x, first), engine), first.t());
  }

  void add_units(const std::vector<Use>& list,
                 std::vector<const torch::nn::Module*>& all) const {
    for (const auto& use : list) {
      all.push_back(&*nodes[use.node]);
      add_units(use.inside, all);
    }
  }
  std::vector<const torch::nn::Module*> units() const {
    std::vector<const torch::nn::Module*> all;
    add_units(uses, all);
    return all;
  }

  Tensor first;
  std::vector<Node> nodes;
  std::vector<Use> uses;
  std::size_t next = 0;
};
TORCH_MODULE(DrawnNet);

// DrawnNet of a seed that is known when the program is compiled.
template <unsigned seed>
struct Drawn : DrawnNet {
  Drawn() : DrawnNet(seed) {}
};

}  // namespace

class UnitShapes : public RanksTest {
 protected:
  template <unsigned seed>
  void expect_bits_of_whole_parameters() {
    using Trained = TrainedNet<Drawn<seed>>;
    const auto x = make_inputs(11);
    on_ranks([&](Communicator& c) {
      Trained whole(c, 0);
      std::vector<std::unique_ptr<Trained>> sharded;
      for (const int stage : {1, 2, 3, 3, 3}) {
        const auto how = sharded.size();
        sharded.push_back(std::make_unique<Trained>(c, stage, [&](EngineOptions& o) {
          o.prefetch_units = how % 3;
          o.reshard_after_forward = how != 4;
          o.persist_below = how == 3 ? 300 : 0;
        }));
      }
      for (int step = 0; step < 4; ++step) {
        const bool alone = step == 2 && c.size() > 1;
        const auto own = !alone          ? share(c, x)
                         : c.rank() == 0 ? x.narrow(0, 0, 0)
                                         : x.narrow(0, c.rank(), 1);
        whole.step(own);
        for (auto& one : sharded) one->step(own);
      }
      for (std::size_t i = 0; i < sharded.size(); ++i) {
        expect_same(whole, *sharded[i], ::lockstep::str("of seed ", seed, ", ", i));
      }
    });
  }
};

INSTANTIATE_TEST_SUITE_P(Ranks, UnitShapes,
                         ::testing::Values(std::tuple(Rig::local, 1),
                                           std::tuple(Rig::local, 3),
                                           std::tuple(Rig::gloo_processes, 2),
                                           std::tuple(Rig::shm_processes, 3)),
                         name_of_ranks);

TEST_P(UnitShapes, HaveTheBitsOfWholeParameters) {
  expect_bits_of_whole_parameters<1>();
  expect_bits_of_whole_parameters<2>();
  expect_bits_of_whole_parameters<3>();
  expect_bits_of_whole_parameters<4>();
  expect_bits_of_whole_parameters<5>();
  expect_bits_of_whole_parameters<6>();
  expect_bits_of_whole_parameters<7>();
  expect_bits_of_whole_parameters<8>();
}

TEST_P(UnitShapes, FrozenParametersAreShardedToo) {
  using Trained = TrainedNet<Drawn<3>>;
  on_ranks([&](Communicator& c) {
    if (c.size() == 1) return;
    Trained sharded(c, 3, [](EngineOptions& o) { o.prefetch_units = 0; });
    std::int64_t here = 0, all = 0;
    for (const auto& item : sharded.net->named_parameters()) {
      EXPECT_EQ(item.value().storage().nbytes(), 0U) << item.key();
      if (!item.value().requires_grad()) all += item.value().numel();
    }
    const auto& engine = sharded.engine;
    for (const auto& shard : engine.frozen_owned()) here += shard.size;
    ASSERT_GT(all, 0) << "the seed draws no frozen parameter";
    std::int64_t padded = 0;
    for (const auto& group : engine.frozen_layout()) padded += group.numel;
    EXPECT_EQ(here * c.size(), padded);
    EXPECT_GE(padded, all);
  });
}

TEST(UnitPlan, AParameterBelongsToTheInnermostUnitThatHasIt) {
  Node outer(3, true, true), inner(3, true, true), beside(3, true, true);
  outer->register_module("inner", inner);
  beside->register_parameter("shared", outer->in->weight);
  const auto plan = parallel::detail::plan_units({&*outer, &*inner, &*beside, &*inner},
                                                 /*persist_below=*/0);
  EXPECT_THAT(plan.unit_of_use, ElementsAre(0, 1, 2, 3, 2));
  EXPECT_THAT(plan.outer_use, ElementsAre(0, 0, 1, 0, 0));
  EXPECT_EQ(plan.unit_of(outer->out->weight), 1U);
  EXPECT_EQ(plan.unit_of(inner->in->weight), 2U);
  EXPECT_EQ(plan.unit_of(outer->in->weight), 0U) << "units beside each other have it";
}

}  // namespace lockstep::test::units
