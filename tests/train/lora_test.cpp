// Adapters in a run: what is trained, what is saved, what a resume needs.
#include "lockstep/models/lora.h"

#include <filesystem>

#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/comm/join.h"
#include "lockstep/storage/catalog.h"
#include "lockstep/storage/safetensors.h"
#include "lockstep/train/replicas.h"
#include "lockstep/train/trainer.h"
#include "tests/support/support.h"
#include "tests/train/checkpoint_rig.h"

namespace lockstep::train {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

config::Config gpt_config(const fs::path& weights) {
  auto config = test::quick_config();
  config.model.name = "gpt";
  config.model.hidden = 16;
  config.model.layers = 2;
  config.model.heads = 2;
  config.model.weights = weights.string();
  config.data.name = "synthetic";
  config.data.dtype = config::SampleType::int64;
  config.data.shape = {8};
  config.data.classes = 20;
  config.data.synthetic_samples = 200;
  config.lora.rank = 2;
  config.lora.dropout = 0.1;
  config.batch.global = 10;
  config.optim.lr = 0.01;
  config.train.steps = 6;
  config.checkpoint.every = 3;
  return config;
}

// Writes weights to begin with, others for each seed.
fs::path write_base(const fs::path& file, std::uint64_t seed) {
  torch::manual_seed(seed);
  const auto model =
      models::build({.name = "gpt", .hidden = 16, .layers = 2, .heads = 2},
                    {.input = {8}, .num_classes = 20});
  checkpoint::write_safetensors(file, checkpoint::state_of(*model));
  return file;
}

Result run_adapters(const fs::path& folder, const config::Config& config) {
  if (!fs::exists(folder / "runs" / "r")) {
    run::RunDirectory::create(folder / "runs", {.name = "r"});
  }
  const auto run = run::RunDirectory::open(folder / "runs" / "r");
  monitor::Console console({.write = [](std::string_view) {}});
  const StopRequest stop;
  auto world = comm::join({}, {});
  Reporter reporter({run, console}, config.monitor, {});
  return train(test::resolved(config), {run, reporter, stop, world});
}

std::string adapter_bytes(const fs::path& folder) {
  return test::read_file(folder / "runs" / "r" / "adapter" /
                         "adapter_model.safetensors");
}

TEST(LoraRun, SavesTheAdaptersAlone) {
  const files::TemporaryDirectory folder;
  const auto base = write_base(folder.path() / "base.safetensors", 1);
  const auto result = run_adapters(folder.path(), gpt_config(base));
  EXPECT_THAT(result.weights, HasSubstr("adapter"));
  const auto run = run::RunDirectory::open(folder.path() / "runs" / "r");
  EXPECT_FALSE(fs::exists(run.path() / "model.safetensors"));
  const auto found = storage::newest_valid(run.checkpoints(), storage::Depth::full);
  ASSERT_TRUE(found.path);
  int adapters = 0;
  for (const auto& tensor : found.manifest.tensors) {
    if (!tensor.name.starts_with("model.")) continue;
    EXPECT_TRUE(models::is_lora(tensor.name)) << tensor.name;
    ++adapters;
  }
  EXPECT_EQ(adapters, 4) << "two in each of two blocks";
  const auto header = storage::read_safetensors_header(run.path() / "adapter" /
                                                       "adapter_model.safetensors");
  EXPECT_NE(header.find("base_model.model.transformer.h.1.attn.c_attn.lora_B.weight"),
            nullptr);
}

TEST(LoraRun, ResumesToTheBitAndOnlyBesideTheSameWeights) {
  const files::TemporaryDirectory folder, cut;
  const auto base = write_base(folder.path() / "base.safetensors", 1);
  run_adapters(folder.path(), gpt_config(base));
  auto config = gpt_config(base);
  config.train.steps = 3;
  run_adapters(cut.path(), config);
  config.train.steps = 6;
  EXPECT_EQ(run_adapters(cut.path(), config).resumed_at, 3);
  EXPECT_EQ(adapter_bytes(cut.path()), adapter_bytes(folder.path()));

  write_base(base, 2);
  config.train.steps = 8;
  EXPECT_THAT(
      test::error_text(Fault::config, [&] { run_adapters(cut.path(), config); }),
      HasSubstr("were trained beside other weights"));
}

TEST(LoraRun, ResumesWithAnotherPaddingOfTheVocabulary) {
  const files::TemporaryDirectory folder;
  auto config = gpt_config(write_base(folder.path() / "base.safetensors", 1));
  config.train.steps = 3;
  run_adapters(folder.path(), config);
  config.train.steps = 6;
  config.model.pad_vocabulary = 16;
  EXPECT_EQ(run_adapters(folder.path(), config).resumed_at, 3);
}

TEST(LoraRun, GoesOnFromAdaptersThatWereGiven) {
  const files::TemporaryDirectory first, second;
  const auto base = write_base(first.path() / "base.safetensors", 1);
  auto config = gpt_config(base);
  run_adapters(first.path(), config);
  config.lora.weights = (first.path() / "runs" / "r" / "adapter").string();
  config.optim.lr = 1e-30;
  config.optim.weight_decay = 0;
  run_adapters(second.path(), config);
  EXPECT_EQ(adapter_bytes(second.path()), adapter_bytes(first.path()));
}

// Trains on two ranks at a stage of ZeRO, or as ddp (0), and returns where it went on.
std::optional<std::int64_t> run_at_stage(const fs::path& folder, config::Config config,
                                         int stage) {
  config.comm.deterministic = true;
  config.parallel.strategy =
      stage == 0 ? config::Strategy::ddp : config::Strategy::zero;
  if (stage > 0) config.parallel.zero_stage = stage;
  config.parallel.shard_update = config::ShardUpdate::off;
  config.parallel.persist_below = 0;
  const int port = test::free_port();
  test::as_processes(2, [&](int rank) {
    auto world = comm::join(test::environment_of(rank, 2, port), {});
    const auto ran = test::run_in(folder, config, world);
    if (rank == 0) {
      const auto at = ran.result.resumed_at.value_or(0);
      test::write_file(folder / "resumed_at", str(at));
    }
    world.close();
  });
  return std::stoll(test::read_file(folder / "resumed_at"));
}

// Frozen weights are sharded like the others, and no file shows it.
TEST(LoraRun, EveryStageHasTheFilesOfDdpAndGoesOnAtAnother) {
  const files::TemporaryDirectory folder;
  const auto base = folder.path() / "base.safetensors";
  test::as_processes(1, [&](int) { write_base(base, 1); });
  const auto config = gpt_config(base);
  auto half = config;
  half.train.steps = 3;
  run_at_stage(folder.path() / "ddp", config, 0);
  const auto wanted = adapter_bytes(folder.path() / "ddp");
  ASSERT_FALSE(wanted.empty());
  for (const int stage : {1, 2, 3}) {
    const auto place = folder.path() / str("stage", stage);
    run_at_stage(place, config, stage);
    EXPECT_TRUE(adapter_bytes(place) == wanted) << "stage " << stage;
    const auto cut = folder.path() / str("cut", stage);
    run_at_stage(cut, half, stage);
    EXPECT_EQ(run_at_stage(cut, config, stage % 3 + 1), 3);
    EXPECT_TRUE(adapter_bytes(cut) == wanted) << "from stage " << stage;
  }
}

TEST(LoraRun, TwoRanksTrainTheSame) {
  const files::TemporaryDirectory one, two;
  const auto base = write_base(one.path() / "base.safetensors", 1);
  auto config = gpt_config(base);
  const auto alone = run_adapters(one.path(), config);
  config.parallel.strategy = config::Strategy::data_parallel;
  config.parallel.ranks = 2;
  const auto run = run::RunDirectory::create(two.path() / "runs", {.name = "r"});
  monitor::Console console({.write = [](std::string_view) {}});
  const StopRequest stop;
  const auto both = train_replicas(test::resolved(config),
                                   {run, {torch::kCPU, torch::kCPU}, console, stop});
  ASSERT_TRUE(alone.train_loss && both.train_loss);
  EXPECT_NEAR(*both.train_loss, *alone.train_loss, 1e-5);
}

}  // namespace
}  // namespace lockstep::train
