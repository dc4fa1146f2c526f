// Whatever the model, the buckets and the shares: gradients are those of the whole
// batch, and the same bits on every rank.
#include <mutex>
#include <random>

#include "lockstep/parallel/engine.h"
#include "tests/comm/ranks.h"

namespace lockstep::test::properties {

using comm::Communicator;
using parallel::Engine;
using parallel::EngineOptions;
using torch::Tensor;

namespace {

using Dice = std::mt19937;

std::int64_t roll(Dice& dice, std::int64_t low, std::int64_t high) {
  return low +
         static_cast<std::int64_t>(dice() % static_cast<std::uint32_t>(high - low + 1));
}
bool chance(Dice& dice, int of_ten) {
  return roll(dice, 1, 10) <= of_ten;
}

constexpr std::int64_t kFeatures = 8;

// Layers from (N, 8) to (N, 8), drawn by chance.
struct RandomNetImpl : torch::nn::Module {
  enum class Kind {
    linear,
    tied,
    turned,
    scale,
    empty,
    in_double,
    conv,
    branch,
    frozen
  };
  struct Layer {
    Kind kind;
    std::vector<Tensor> weights;
  };

  explicit RandomNetImpl(Dice& dice) {
    const auto count = roll(dice, 1, 9);
    for (std::int64_t i = 0; i < count; ++i) {
      add(static_cast<Kind>(roll(dice, 0, 8)), dice);
    }
    add(Kind::linear, dice);  // there is something to train
  }

  Tensor weight(std::vector<std::int64_t> shape, torch::Dtype dtype = torch::kFloat32) {
    return torch::randn(shape, torch::dtype(dtype)).mul_(0.3);
  }

  // The first layer's, if that has one.
  Tensor to_be_tied(std::int64_t width) {
    if (!layers.empty() && layers[0].kind == Kind::linear) return layers[0].weights[0];
    return weight({width, kFeatures});
  }

  void add(Kind kind, Dice& dice) {
    const auto width = roll(dice, 1, 40);
    Layer layer{kind, {}};
    switch (kind) {
      case Kind::linear:
      case Kind::branch:
      case Kind::frozen:
        layer.weights = {weight({width, kFeatures}), weight({width}),
                         weight({kFeatures, width})};
        break;
      case Kind::tied:
        layer.weights = {to_be_tied(width)};
        break;
      case Kind::turned:
        layer.weights = {weight({kFeatures, kFeatures}).t()};
        break;
      case Kind::scale:
        layer.weights = {torch::ones({})};
        break;
      case Kind::empty:
        layer.weights = {torch::zeros({0, width})};
        break;
      case Kind::in_double:
        layer.weights = {weight({kFeatures, kFeatures}, torch::kFloat64)};
        break;
      case Kind::conv:
        layer.weights = {
            weight({2, 2, 3, 3}).contiguous(torch::MemoryFormat::ChannelsLast)};
        break;
    }
    for (std::size_t i = 0; i < layer.weights.size(); ++i) {
      const bool trained = kind != Kind::frozen || i != 0;
      layer.weights[i] = register_parameter(str("layer", layers.size(), "_", i),
                                            layer.weights[i], trained);
    }
    layers.push_back(std::move(layer));
  }

  Tensor forward(Tensor h, bool with_branch) {
    for (const auto& layer : layers) h = torch::tanh(passed(layer, h, with_branch));
    return h;
  }

  static Tensor passed(const Layer& layer, const Tensor& h, bool with_branch) {
    const auto& w = layer.weights;
    switch (layer.kind) {
      case Kind::branch:
        if (!with_branch) return h;
        [[fallthrough]];
      case Kind::linear:
      case Kind::frozen:
        return h + torch::linear(torch::linear(h, w[0], w[1]), w[2]);
      case Kind::tied:
        return h + torch::linear(h, w[0]).sum(1, true);
      case Kind::turned:
        return h + torch::mm(h, w[0]);
      case Kind::scale:
        return h * w[0];
      case Kind::empty:
        return h + w[0].sum();
      case Kind::in_double:
        return h + torch::linear(h.to(torch::kFloat64), w[0]).to(torch::kFloat32);
      case Kind::conv:
        break;
    }
    const auto image =
        h.view({-1, 2, 2, 2}).contiguous(torch::MemoryFormat::ChannelsLast);
    return h + torch::conv2d(image, w[0], {}, 1, 1).reshape({-1, kFeatures});
  }

  bool has_branch() const {
    return std::any_of(layers.begin(), layers.end(),
                       [](const Layer& l) { return l.kind == Kind::branch; });
  }

  std::vector<Layer> layers;
};
TORCH_MODULE(RandomNet);

// Everything that a seed decides, the same on every rank.
struct Drawn {
  explicit Drawn(unsigned seed, int ranks) : dice(seed) {
    static std::mutex one_at_a_time;  // ranks are threads, and the generator theirs
    const std::lock_guard lock(one_at_a_time);
    auto generator = at::detail::getDefaultCPUGenerator();
    generator.set_current_seed(seed);
    net = RandomNet(dice);
    options.layout = {roll(dice, 1, 2000), roll(dice, 1, 4000)};
    options.gradient_as_bucket_view = chance(dice, 7);
    options.deterministic = chance(dice, 3);
    options.find_unused_parameters = chance(dice, 4) && options.gradient_as_bucket_view;
    for (int r = 0; r < ranks; ++r) {
      uses_branch.push_back(!options.find_unused_parameters || chance(dice, 5));
    }
  }

  // How many samples each rank has in a step: one of them at least one.
  std::vector<std::int64_t> shares() {
    std::vector<std::int64_t> result(uses_branch.size());
    for (auto& share : result) share = chance(dice, 7) ? roll(dice, 1, 6) : 0;
    result[static_cast<std::size_t>(
        roll(dice, 0, static_cast<std::int64_t>(result.size()) - 1))] += 1;
    return result;
  }

  Dice dice;
  RandomNet net{nullptr};
  EngineOptions options;
  std::vector<bool> uses_branch;  // by rank
};

std::string describe(const Drawn& drawn) {
  const auto& o = drawn.options;
  auto text =
      str("buckets ", o.layout.first_bucket_bytes, " and ", o.layout.bucket_bytes,
          ", views ", o.gradient_as_bucket_view, ", deterministic ", o.deterministic,
          ", find_unused ", o.find_unused_parameters, ", layers");
  for (const auto& layer : drawn.net->layers) {
    text += str(" ", static_cast<int>(layer.kind));
  }
  return text;
}

Tensor loss_of(RandomNet& net, const Tensor& x, std::int64_t batch, bool with_branch) {
  return net->forward(x, with_branch).pow(2).sum() / static_cast<double>(batch);
}

void expect_gradients(const RandomNet& net, const RandomNet& whole) {
  const auto got = net->parameters(), expected = whole->parameters();
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!got[i].requires_grad() || got[i].numel() == 0) continue;
    const auto wanted = expected[i].grad().defined() ? expected[i].grad()
                                                     : torch::zeros_like(expected[i]);
    ASSERT_TRUE(got[i].grad().defined());
    // Sums of some hundred float32 terms in another order, through ten layers: relative
    // to the largest element, and to 1, since what cancels was as large as that.
    const double bound = 1e-5 * (1 + wanted.abs().max().item<double>());
    EXPECT_LE((got[i].grad() - wanted).abs().max().item<double>(), bound)
        << net->named_parameters().keys()[i];
  }
}

void expect_same_bits(Communicator& c, Engine& engine) {
  for (std::size_t g = 0; g < engine.layout().size(); ++g) {
    const auto mine = engine.gradients(g).clone();
    const auto all = torch::empty({c.size() * mine.numel()}, mine.options());
    c.all_gather(all, mine).wait();
    const auto rows = all.view({c.size(), -1});
    for (int r = 1; r < c.size(); ++r) EXPECT_TRUE(torch::equal(rows[r], rows[0]));
  }
}

void copy_values(const RandomNet& from, const RandomNet& to) {
  const torch::NoGradGuard no_grad;
  const auto source = from->parameters(), target = to->parameters();
  for (std::size_t i = 0; i < source.size(); ++i) target[i].copy_(source[i]);
}

// One step of a rank: its share in one pass, or in two of which the first only
// accumulates, or none.
void pass(Drawn& drawn, Engine& engine, const Tensor& share, std::int64_t batch,
          bool with_branch) {
  const auto size = share.size(0);
  const auto first = size > 1 && chance(drawn.dice, 3) ? size / 2 : 0;
  if (first > 0) {
    const auto scope = engine.no_sync();
    loss_of(drawn.net, share.narrow(0, 0, first), batch, with_branch).backward();
  }
  if (size > 0) {
    loss_of(drawn.net, share.narrow(0, first, size - first), batch, with_branch)
        .backward();
  }
  engine.finish();
}

void check(Communicator& c, unsigned seed) {
  Drawn drawn(seed, c.size()), reference(seed, c.size());
  SCOPED_TRACE(
      str("seed ", seed, ", rank ", c.rank(), " of ", c.size(), ": ", describe(drawn)));
  Engine engine(*drawn.net, {c, c}, drawn.options);
  auto& dice = reference.dice;  // the other's is used differently on each rank
  for (int step = 0; step < 3; ++step) {
    const auto shares = reference.shares();
    SCOPED_TRACE(str("step ", step, ", shares ", c10::Join(" ", shares)));
    const auto batch = std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
    auto generator = at::detail::createCPUGenerator(dice());
    const auto x = torch::randn({batch, kFeatures}, generator);
    copy_values(drawn.net, reference.net);
    reference.net->zero_grad();
    engine.zero_gradients();
    std::int64_t begin = 0;
    for (int r = 0; r < c.size(); ++r) {
      const auto index = static_cast<std::size_t>(r);
      const auto share = x.narrow(0, begin, shares[index]);
      begin += shares[index];
      const bool with_branch = drawn.uses_branch[index];
      loss_of(reference.net, share, batch, with_branch).backward();
      if (r == c.rank()) pass(drawn, engine, share, batch, with_branch);
    }
    expect_gradients(drawn.net, reference.net);
    expect_same_bits(c, engine);
    for (std::size_t g = 0; g < engine.layout().size(); ++g) {
      engine.values(g).sub_(engine.gradients(g), 0.1);
    }
  }
}

}  // namespace

TEST(EngineProperties, WithoutViewsARankWithoutSamplesHasTheSumsToo) {
  with_communicators(Rig::local, 2, [](Communicator& c) {
    torch::nn::Linear net(3, 2);
    Engine engine(*net, {c, c}, {.gradient_as_bucket_view = false});
    for (int step = 0; step < 2; ++step) {
      engine.zero_gradients();
      if (c.rank() == 0) net->forward(torch::ones({4, 3})).sum().backward();
      engine.finish();
      ASSERT_TRUE(net->bias.grad().defined());
      EXPECT_TRUE(net->bias.grad().eq(4).all().item<bool>());
      EXPECT_EQ(engine.gradients(0).sum().item<float>(), 2 * 3 * 4 + 2 * 4);
    }
  });
}

TEST(EngineProperties, RandomModelsOverThreads) {
  for (unsigned seed = 1; seed <= 60 && !::testing::Test::HasFailure(); ++seed) {
    with_communicators(Rig::local, 2 + static_cast<int>(seed % 3),
                       [&](Communicator& c) { check(c, seed); });
  }
}

TEST(EngineProperties, RandomModelsOverGloo) {
  for (unsigned seed = 101; seed <= 106 && !::testing::Test::HasFailure(); ++seed) {
    with_communicators(Rig::gloo_processes, 2 + static_cast<int>(seed % 3),
                       [&](Communicator& c) {
                         for (unsigned i = 0; i < 5; ++i) check(c, 10 * seed + i);
                       });
  }
}

TEST(EngineProperties, RandomModelsOverSharedMemory) {
  for (unsigned seed = 201; seed <= 206 && !::testing::Test::HasFailure(); ++seed) {
    with_communicators(Rig::shm_processes, 2 + static_cast<int>(seed % 3),
                       [&](Communicator& c) {
                         for (unsigned i = 0; i < 5; ++i) check(c, 10 * seed + i);
                       });
  }
}

}  // namespace lockstep::test::properties
