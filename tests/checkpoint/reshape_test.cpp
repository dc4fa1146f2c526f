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
  int stage = 0;  // of ZeRO; 0: ddp

  std::string name() const {
    return str(model, sharded == ShardUpdate::on ? "_sharded_" : "_whole_", ranks, "_",
               stage);
  }
  bool has_shards() const {
    return ranks > 1 && (sharded == ShardUpdate::on || stage > 0);
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
    config.model.heads = 1;
    config.precision.mode = way.model == "mlp"   ? config::Precision::bf16_params
                            : way.model == "gpt" ? config::Precision::fp16_params
                                                 : config::Precision::fp32;
    config.parallel.strategy =
        way.stage > 0 ? config::Strategy::zero : config::Strategy::ddp;
    config.parallel.zero_stage = std::max(1, way.stage);
    config.parallel.persist_below = 0;
    config.parallel.shard_update = way.sharded;
    config.parallel.bucket_bytes = 3000;  // several, whose ends are not those of shards
    const auto side = way.model == "mlp" ? 5 : 9;
    const models::Shape image{{1, side, side + 2}, 7}, tokens{{11}, 17};
    model = models::build(config.model, way.model == "gpt" ? tokens : image);
    precision::convert(*model, {.mode = config.precision.mode});
    train::use_layout(*model);
    strategy = parallel::make_strategy(config, *model, world);
  }

  std::shared_ptr<models::Model> model;
  std::unique_ptr<parallel::Strategy> strategy;
};

// Numbers by which an element is known: of which tensor it is, and where in its rows.
// Each is exact in bfloat16 and in float16.
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
    const auto tensor = held.strategy->full_parameter(item.value());
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
  EXPECT_EQ(held < all, way.has_shards()) << way.name();
  EXPECT_EQ(reordered, way.model != "mlp" && way.model != "gpt") << way.name();
}

void write(const Held& held, comm::World& world, const files::Path& checkpoints) {
  Saver saver(
      {.checkpoints = checkpoints, .rank = world.rank(), .ranks = world.size()});
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

void save(const Way& way, comm::World& world, const files::Path& folder) {
  const torch::NoGradGuard no_grad;
  const Held held(way, world);
  expect_as_told(way, *held.strategy);
  for (const auto& piece : held.strategy->state().to_load())
    piece.data.copy_(marks_of(piece));
  write(held, world, folder / way.name());
}

// What was loaded is saved before anything else happens: the same files.
void save_again(const Way& way, comm::World& world, const files::Path& folder) {
  const torch::NoGradGuard no_grad;
  const Held held(way, world);
  const storage::Reader first(folder / way.name() / "step_1");
  load(first, held.strategy->state().to_load(), {});
  write(held, world, folder / ("again_" + way.name()));
  world.cpu().barrier();
  const storage::Reader second(folder / ("again_" + way.name()) / "step_1");
  ASSERT_EQ(second.manifest().files.size(), first.manifest().files.size());
  for (std::size_t i = 0; i < first.manifest().files.size(); ++i) {
    const auto& was = first.manifest().files[i];
    const auto& is = second.manifest().files[i];
    EXPECT_EQ(is.name, was.name) << way.name();
    EXPECT_EQ(is.size, was.size) << way.name();
    EXPECT_EQ(to_hex(is.digest()), to_hex(was.digest())) << way.name();
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

// In units, with parameters in float16 and their copies. One that has been loaded is
// saved to the same bytes.
TEST(Reshape, EveryStageReadsWhatEveryOtherHasWrittenToTheBit) {
  const files::TemporaryDirectory folder;
  constexpr std::array kAllStages{0, 1, 2, 3};
  on_ranks(3, [&](comm::World& world) {
    for (const int stage : kAllStages) {
      const Way way{"gpt", ShardUpdate::off, 3, stage};
      save(way, world, folder.path());
      save_again(way, world, folder.path());
    }
  });
  for (const int ranks : {1, 2, 4}) {
    on_ranks(ranks, [&](comm::World& world) {
      for (const int from : kAllStages) {
        for (const int to : kAllStages) {
          if (ranks == 1 && to > 0) continue;
          load({"gpt", ShardUpdate::off, 3, from}, {"gpt", ShardUpdate::off, ranks, to},
               world, folder.path());
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
