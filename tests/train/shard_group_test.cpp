// Runs whose ranks shard within groups (parallel.shard_group).
#include <sstream>

#include "lockstep/base/text.h"
#include "tests/train/checkpoint_rig.h"

namespace lockstep::test {

namespace {

struct GroupedRun {
  int ranks = 4;
  int stage = 1;  // 0: ddp
  int group = 0;
  std::int64_t crash = 0;  // the step after which it is cut; 0: it ends
};

config::Config config_of(const GroupedRun& run) {
  auto config = rich_config();
  config.model.name = "cnn";
  config.comm.deterministic = true;
  config.batch.micro = 20;  // one pass
  config.parallel.persist_below = 0;
  if (run.stage == 0) {
    config.parallel.strategy = config::Strategy::ddp;
    config.parallel.shard_update = config::ShardUpdate::off;
    return config;
  }
  config.parallel.strategy = config::Strategy::zero;
  config.parallel.zero_stage = run.stage;
  config.parallel.shard_group = run.group;
  return config;
}

// Trains in `place`, from its last checkpoint on if there is one.
Losses losses_of(const files::Path& place, const GroupedRun& run) {
  const int port = free_port();
  as_processes(run.ranks, [&](int rank) {
    auto world = comm::join(environment_of(rank, run.ranks, port), {});
    const auto hooks = run.crash > 0 ? crash_after(run.crash) : train::RunHooks{};
    const auto ran = run_in(place, config_of(run), world, hooks);
    std::string lines;
    for (const auto& [step, loss] : ran.losses) {
      lines += str(step, " ", text::from_double(loss), "\n");
    }
    if (rank == 0) write_file(place / "losses", lines);
    world.close();
  });
  Losses losses;
  std::istringstream text(read_file(place / "losses"));
  std::int64_t step = 0;
  for (double loss = 0; text >> step >> loss;) losses[step] = loss;
  return losses;
}

void expect_near(const Losses& some, const Losses& expected, const std::string& what) {
  ASSERT_EQ(some.size(), expected.size()) << what;
  for (const auto& [step, loss] : expected) {
    // Sums in another order, through twelve updates.
    EXPECT_NEAR(some.at(step), loss, 5e-5) << what << ", step " << step;
  }
}

}  // namespace

TEST(ShardGroupRuns, TrainAsDdpAndGoOnAtAnyOtherStageAndNumberOfRanks) {
  const files::TemporaryDirectory folder;
  const auto ddp = losses_of(folder.path() / "ddp", {.stage = 0});
  ASSERT_EQ(ddp.size(), 12U);
  const auto unbroken = losses_of(folder.path() / "unbroken", {.stage = 3, .group = 2});
  expect_near(unbroken, ddp, "groups of two");
  expect_same(losses_of(folder.path() / "first", {.stage = 1, .group = 2}), unbroken);
  losses_of(folder.path() / "cut", {.stage = 3, .group = 2, .crash = 8});
  const auto go_on = [&](const std::string& name, const GroupedRun& run) {
    const auto place = folder.path() / name;
    std::filesystem::copy(folder.path() / "cut", place,
                          std::filesystem::copy_options::recursive |
                              std::filesystem::copy_options::copy_symlinks);
    return losses_of(place, run);
  };
  expect_same(go_on("same", {.stage = 3, .group = 2}), unbroken);
  expect_same(go_on("second", {.stage = 2, .group = 2}), unbroken);
  expect_near(go_on("three", {.ranks = 3, .stage = 2}), unbroken, "three ranks");
  expect_near(go_on("pair", {.ranks = 2, .stage = 0}), unbroken, "ddp over two");
}

}  // namespace lockstep::test
