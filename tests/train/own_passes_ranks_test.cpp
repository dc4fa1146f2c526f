// Passes that the gpt writes out, with several ranks and where memory is short.
#include <array>
#include <filesystem>

#include "lockstep/kernels/gemm.h"
#include "lockstep/memory/out_of_memory.h"
#include "tests/train/checkpoint_rig.h"

namespace lockstep::train {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

constexpr std::int64_t kWords = 257, kRow = 32, kRows = 60;

// A gpt on a file of tokens, whose passes are its own.
config::Config own_gpt_config(const fs::path& folder) {
  std::vector<std::int32_t> header(256);
  header[0] = 20240520, header[1] = 1, header[2] = kRows * kRow + 1;
  std::string bytes(reinterpret_cast<const char*>(header.data()), 1024);
  for (std::int64_t i = 0; i < header[2]; ++i) {
    const auto token = static_cast<std::uint16_t>(i * i % kWords);
    bytes.append(reinterpret_cast<const char*>(&token), sizeof(token));
  }
  fs::create_directories(folder / "tokens");
  test::write_file(folder / "tokens" / "train.bin", bytes);
  test::write_file(folder / "tokens" / "val.bin", bytes);
  auto config = test::quick_config();
  config.model.name = "gpt";
  config.model.hidden = 32;
  config.model.layers = 3;
  config.model.heads = 2;
  config.model.own_backward = true;
  config.data.name = "tokens";
  config.data.dir = (folder / "tokens").string();
  config.data.sequence = kRow;
  config.data.classes = kWords;
  config.data.train_samples = config.data.eval_samples = 0;
  config.batch.global = 16;
  config.batch.micro = 8;
  config.batch.eval = 1;
  config.optim.lr = 1e-3;
  config.optim.clip_norm = 1;
  config.train.steps = 4;
  return config;
}

// Stage 0 is ddp, whose update is whole on every rank.
config::Config at_stage(config::Config config, int stage) {
  config.parallel.bucket_bytes = 40'000;
  config.parallel.first_bucket_bytes = 4'000;
  if (stage > 0) {
    config.parallel.strategy = config::Strategy::zero;
    config.parallel.zero_stage = stage;
  } else {
    config.parallel.strategy = config::Strategy::ddp;
    config.parallel.shard_update = config::ShardUpdate::off;
  }
  return config;
}

std::string weights_in(const fs::path& folder) {
  return test::read_file(folder / "runs" / "r" / "model.safetensors");
}

// Over gloo changed values are still on their way when the next forward pass begins.
TEST(OwnPassesOfRanks, EveryStageThatTheyKnowHasTheBitsOfDdpAndComesNearAutograd) {
  using config::CommBackend;
  for (const auto& [ranks, backend] : {std::pair(2, CommBackend::gloo),
                                       {3, CommBackend::gloo},
                                       {2, CommBackend::shm}}) {
    const files::TemporaryDirectory folder;
    const auto port = test::free_port();
    test::as_processes(ranks, [&, ranks = ranks, backend = backend](int rank) {
      auto config = own_gpt_config(folder.path() / str("rank", rank));
      config.comm.deterministic = true;
      config.comm.backend = backend;
      auto world =
          comm::join(test::environment_of(rank, ranks, port), {.config = config.comm});
      const auto train_as = [&](const std::string& name, const config::Config& recipe) {
        return test::run_in(folder.path() / str(ranks, name), recipe, world);
      };
      auto plain = at_stage(config, 0);
      plain.model.own_backward = false;
      const auto wanted = train_as("plain", plain).losses;
      std::array<std::string, 3> weights;
      for (const int stage : {0, 1, 2}) {
        const auto name = str("stage", stage);
        // One pass: stage 2 adds up several in another order.
        auto staged = at_stage(config, stage);
        staged.batch.micro = 16;
        const auto losses = train_as(name, staged).losses;
        if (rank != 0) continue;
        weights[static_cast<std::size_t>(stage)] =
            weights_in(folder.path() / str(ranks, name));
        for (const auto& [step, loss] : wanted) {
          EXPECT_NEAR(losses.at(step), loss, 1e-5 * loss)
              << "sums in another order, grown by four updates; " << name << " "
              << step;
        }
      }
      EXPECT_EQ(wanted.size(), rank == 0 ? 4U : 0U);
      EXPECT_TRUE(weights[1] == weights[0] && weights[2] == weights[0]) << ranks;
      world.close();
    });
  }
}

// Of one run: what it needs at most.
std::int64_t most_of(const fs::path& folder, const config::Config& config) {
  const memory::HostMemoryLimit all(std::int64_t{1} << 40);
  test::run_alone(folder, config);
  return all.peak_bytes();
}

// What takes the most memory is a step.
config::Config in_pieces(const fs::path& folder, std::int64_t micro) {
  auto config = own_gpt_config(folder);
  config.batch.micro = micro;
  config.checkpoint.save_last = false;
  return config;
}

TEST(OwnPassesAndMemory, AStepThatDoesNotFitIsDoneAgainInSmallerPieces) {
  const files::TemporaryDirectory folder;
  const auto at = [&](const char* name) { return folder.path() / name; };
  const auto large = most_of(at("large"), in_pieces(folder.path(), 16)),
             small = most_of(at("small"), in_pieces(folder.path(), 8));
  ASSERT_GT(large, small + (1 << 18));
  const auto wanted = test::run_alone(at("wanted"), in_pieces(folder.path(), 8)).losses;
  const memory::HostMemoryLimit limit((large + small) / 2);
  const auto ran = test::run_alone(at("short"), in_pieces(folder.path(), 16));
  EXPECT_THAT(ran.events, Contains("out_of_memory"));
  EXPECT_EQ(ran.losses, wanted) << "as if it had begun so";
}

// A try that is too much leaves no memory behind that the next one has to count.
TEST(OwnPassesAndMemory, TheLargestMicroBatchThatFitsIsFound) {
  const files::TemporaryDirectory folder;
  const auto at = [&](const char* name) { return folder.path() / name; };
  const auto large = most_of(at("large"), in_pieces(folder.path(), 16)),
             small = most_of(at("small"), in_pieces(folder.path(), 8));
  auto config = in_pieces(folder.path(), 16);
  config.memory.find_micro = true;
  config.memory.target = 0.8;
  config.memory.host_limit = (large + small) / 2 * 10 / 8;
  const auto ran = test::run_alone(at("found"), config);
  EXPECT_THAT(ran.events, Contains("micro_batch"));
  EXPECT_THAT(ran.events, Not(Contains("out_of_memory")));
  const auto wanted = test::run_alone(at("wanted"), in_pieces(folder.path(), 16));
  for (const auto& [step, loss] : wanted.losses) {
    EXPECT_NEAR(ran.losses.at(step), loss, 1e-5 * loss) << "sums in another order";
  }
}

TEST(OwnPassesAndMemory, ARankWithoutMemoryTakesTheOthersAlong) {
  const files::TemporaryDirectory folder;
  const auto port = test::free_port();
  test::as_processes(2, [&](int rank) {
    auto world = comm::join(test::environment_of(rank, 2, port), {});
    for (const int stage : {0, 2}) {
      test::Ran wanted;
      const auto train_in = [&](const std::string& name, std::int64_t micro) {
        auto config =
            at_stage(in_pieces(folder.path() / str("rank", rank), micro), stage);
        config.batch.global = 32;
        return test::run_in(folder.path() / str(name, stage), config, world);
      };
      const auto peak_with = [&](std::int64_t micro) {
        const memory::HostMemoryLimit all(std::int64_t{1} << 40);
        wanted = train_in(str("peak", micro), micro);
        return all.peak_bytes();
      };
      const auto large = peak_with(16), small = peak_with(8);
      std::optional<memory::HostMemoryLimit> limit;
      if (rank == 1) limit.emplace((large + small) / 2);
      const auto seen = train_in("short", 16);
      if (rank != 0) continue;
      EXPECT_THAT(seen.events, Contains("out_of_memory")) << stage;
      EXPECT_EQ(seen.losses, wanted.losses) << stage;
    }
    world.close();
  });
}

TEST(OwnPassesAndMemory, WhatDoesNotFitAtAllSaysWhatWouldHelp) {
  const files::TemporaryDirectory folder;
  const auto config = in_pieces(folder.path(), 1);
  const auto most = most_of(folder.path() / "most", config);
  const memory::HostMemoryLimit limit(most - (100 << 10));  // of 230 kB of a pass
  const auto text = test::error_text(
      Fault::hardware, [&] { test::run_alone(folder.path() / "short", config); });
  EXPECT_THAT(text, HasSubstr("with micro-batches of 1; "));
  EXPECT_THAT(text, HasSubstr("model.own_backward=false, which can compute"));
}

// Two ranks share the GPU, which NCCL allows if it takes them for ranks of different
// machines; sums of two have one order.
TEST(OwnPassesOfRanksGpu, StagesOverNcclHaveTheBitsOfDdp) {
  // Nothing may touch the GPU before the ranks are forked.
  if (!fs::exists("/dev/nvidiactl")) GTEST_SKIP() << "no GPU";
  if (!kernels::gemms_available()) GTEST_SKIP() << "no kernels of ours";
  std::array<std::string, 3> weights;
  for (const int stage : {0, 1, 2}) {
    const files::TemporaryDirectory folder;
    auto config = at_stage(own_gpt_config(folder.path()), stage);
    config.parallel.device = config::Device::cuda;
    config.data.pin_memory = true;
    config.precision.mode = config::Precision::bf16_params;
    config.comm.backend = config::CommBackend::nccl;
    config.batch.micro = 16;
    config.train.steps = 20;
    const auto port = test::free_port();
    const auto ends = test::as_processes(2, [&](int rank) {
      ::setenv("NCCL_HOSTID", std::to_string(rank).c_str(), 1);
      auto world =
          comm::join(test::environment_of(rank, 2, port),
                     {.config = config.comm, .device = torch::Device(torch::kCUDA, 0)});
      EXPECT_EQ(test::run_in(folder.path(), config, world).result.steps, 20);
      world.close();
    });
    for (const auto& end : ends) EXPECT_EQ(end.shell_status(), 0);
    weights[static_cast<std::size_t>(stage)] = weights_in(folder.path());
  }
  EXPECT_FALSE(weights[0].empty());
  EXPECT_TRUE(weights[1] == weights[0]);
  EXPECT_TRUE(weights[2] == weights[0]);
}

}  // namespace
}  // namespace lockstep::train
