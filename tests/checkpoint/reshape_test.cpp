// A checkpoint is of a model, not of ranks: whoever saved it, whoever loads it.
#include <functional>

#include "lockstep/checkpoint/load.h"
#include "lockstep/checkpoint/saver.h"
#include "lockstep/models/model.h"
#include "lockstep/parallel/strategy.h"
#include "lockstep/precision/policy.h"
#include "lockstep/train/step.h"
#include "tests/comm/ranks.h"

namespace lockstep::checkpoint {
namespace {

using config::ShardUpdate;

// What is saved, and by whom.
struct Way {
  std::string model;
  ShardUpdate sharded = ShardUpdate::off;
  int ranks = 1;

  std::string name() const {
    return str(model, sharded == ShardUpdate::on ? "_sharded_" : "_whole_", ranks);
  }
};

// A model as a training loop has it, under a strategy.
struct Held {
  Held(const Way& way, comm::World& world) {
    config::Config config;
    config.model.name = way.model;
    config.model.hidden = 13;
    config.model.layers = 3;
    config.ema.enabled = true;
    config.precision.mode =
        way.model == "mlp" ? config::Precision::bf16_params : config::Precision::fp32;
    config.parallel.strategy = config::Strategy::ddp;
    config.parallel.shard_update = way.sharded;
    config.parallel.bucket_bytes = 3000;  // several, whose ends are not those of shards
    const auto side = way.model == "mlp" ? 5 : 9;
    model = models::build(config.model, {{1, side, side + 2}, 7});
    precision::convert(*model, {.mode = config.precision.mode});
    train::use_layout(*model);
    strategy = parallel::make_strategy(config, *model, world);
  }

  std::shared_ptr<models::Model> model;
  std::unique_ptr<parallel::Strategy> strategy;
};

// Numbers by which an element is known: of which tensor it is, and where in its rows.
// Each is exact in bfloat16.
torch::Tensor marks_of(const std::string& name, const storage::Shape& shape,
                       torch::Dtype dtype) {
  const auto salt = static_cast<std::int64_t>(std::hash<std::string>()(name) % 251);
  const auto count = storage::num_elements(shape).value();
  return torch::arange(count).add_(salt).remainder_(251).to(dtype).view(shape);
}

// Of a piece: in its order, its part of them.
torch::Tensor marks_of(const Piece& piece) {
  auto marks = marks_of(piece.name, piece.shape, piece.data.scalar_type());
  if (!piece.order.empty()) marks = marks.permute(piece.order).contiguous();
  return marks.flatten().narrow(0, piece.begin, piece.data.numel());
}

void expect_marked(const Held& held, const std::string& what) {
  const torch::NoGradGuard no_grad;
  for (const auto& piece : held.strategy->state().to_load()) {
    EXPECT_TRUE(torch::equal(piece.data, marks_of(piece))) << piece.name << " " << what;
  }
  // Whatever the strategy says about its pieces, this is what computes.
  for (const auto& item : held.model->named_parameters()) {
    const auto& tensor = item.value();
    EXPECT_TRUE(torch::equal(
        tensor,
        marks_of("model." + item.key(), tensor.sizes().vec(), tensor.scalar_type())))
        << item.key() << " " << what;
  }
}

// That the ways differ at all: a rank of several has a part, convolutions another
// order.
void expect_as_told(const Way& way, parallel::Strategy& strategy) {
  std::int64_t held = 0, all = 0;
  bool reordered = false;
  for (const auto& piece : strategy.state().to_load()) {
    held += piece.data.numel();
    reordered |= !piece.order.empty();
  }
  for (const auto& one : strategy.state().expected()) {
    all += storage::num_elements(one.shape).value();
  }
  EXPECT_EQ(held < all, way.sharded == ShardUpdate::on && way.ranks > 1) << way.name();
  EXPECT_EQ(reordered, way.model != "mlp") << way.name();
}

void save(const Way& way, comm::World& world, const files::Path& folder) {
  const torch::NoGradGuard no_grad;
  const Held held(way, world);
  expect_as_told(way, *held.strategy);
  for (const auto& piece : held.strategy->state().to_load())
    piece.data.copy_(marks_of(piece));
  Saver saver({.checkpoints = folder / way.name(),
               .rank = world.rank(),
               .ranks = world.size()});
  saver.begin(held.strategy->state().to_save(),
              {.step = 1, .world_size = world.size()});
  saver.fence();
  // Written is what it was at begin(), not what becomes of it.
  for (const auto& piece : held.strategy->state().to_load()) piece.data.zero_();
  while (saver.is_busy()) {
    saver.wait(std::chrono::milliseconds(20));
    world.votes().cast({.flags = saver.flags()});
    if (const auto outcome = saver.on_ballots(world.votes().count())) {
      EXPECT_TRUE(outcome->saved) << outcome->text;
    }
  }
}

void load(const Way& saved, const Way& way, comm::World& world,
          const files::Path& folder) {
  const auto what = str("saved as ", saved.name(), ", loaded as ", way.name());
  const Held held(way, world);
  const storage::Reader reader(folder / saved.name() / "step_1");
  check(reader.manifest(), held.strategy->state().expected(), {});
  load(reader, held.strategy->state().to_load(), {});
  expect_marked(held, what);
}

void on_ranks(int ranks, const std::function<void(comm::World&)>& body) {
  const int port = test::free_port();
  test::as_processes(ranks, [&](int rank) {
    torch::set_num_threads(1);
    auto world = comm::join(test::environment_of(rank, ranks, port), {});
    body(world);
    world.close();
  });
}

constexpr std::array kBoth{ShardUpdate::off, ShardUpdate::on};

TEST(Reshape, EveryNumberOfRanksReadsWhatEveryOtherHasWrittenToTheBit) {
  const files::TemporaryDirectory folder;
  std::vector<Way> saved;
  for (int ranks = 1; ranks <= 4; ++ranks) {
    std::vector<Way> now;
    for (const auto* model : {"mlp", "cnn"}) {
      for (const auto sharded : kBoth) now.push_back({model, sharded, ranks});
    }
    saved.insert(saved.end(), now.begin(), now.end());
    on_ranks(ranks, [&](comm::World& world) {
      for (const auto& way : now) save(way, world, folder.path());
    });
  }
  for (int ranks = 1; ranks <= 4; ++ranks) {
    on_ranks(ranks, [&](comm::World& world) {
      for (const auto& from : saved) {
        for (const auto sharded : kBoth) {
          load(from, {from.model, sharded, ranks}, world, folder.path());
        }
      }
    });
  }
}

// With statistics, which no rank owns, and convolutions that are large enough for every
// shard to end inside one.
TEST(Reshape, AResNetOfThreeRanksIsReadByOneTwoAndFour) {
  const files::TemporaryDirectory folder;
  const Way three{"resnet9", ShardUpdate::on, 3};
  on_ranks(3, [&](comm::World& world) { save(three, world, folder.path()); });
  for (const int ranks : {1, 2, 4}) {
    const auto sharded = ranks == 1 ? ShardUpdate::off : ShardUpdate::on;
    on_ranks(ranks, [&](comm::World& world) {
      load(three, {"resnet9", sharded, ranks}, world, folder.path());
    });
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
