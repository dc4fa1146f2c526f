// Prompts that several ranks continue: at stage 3 nobody has the whole model, and the
// texts are those of ddp.
#include "lockstep/train/prompts.h"

#include <variant>

#include "lockstep/memory/memory_meter.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/train/checkpoint_rig.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

// Texts by step and prompt.
using Texts = std::vector<std::string>;

class SharedPrompts : public ::testing::Test {
 protected:
  SharedPrompts() {
    const auto texts = folder_.path() / "texts";
    fs::create_directories(texts);
    std::string lines;
    for (int i = 0; i < 8; ++i) {
      lines += str("{\"text\": \"In the morning of day ", i, " it rained.\"}\n");
    }
    test::write_file(texts / "train.jsonl", lines);
    test::write_file(texts / "val.jsonl", lines);
    config_ = test::quick_config();
    config_.model.name = "gpt";
    config_.model.hidden = 16;
    config_.model.layers = 3;
    config_.model.heads = 2;
    config_.data.name = "text";
    config_.data.dir = texts.string();
    config_.data.sequence = 48;
    config_.data.train_samples = config_.data.eval_samples = 0;
    config_.data.text.tokenizer = test::write_byte_tokenizer(folder_.path()).string();
    config_.batch.global = 4;
    config_.batch.micro = 2;
    config_.train.steps = 6;
    config_.optim.lr = 0.02;
    config_.eval.every = 3;
    config_.eval.prompts = {"In", "It is day 3, and", "r"};
    config_.eval.prompt_tokens = 8;
    config_.comm.deterministic = true;
    config_.parallel.persist_below = 0;
  }

  config::Config at_stage(int stage) const {
    auto config = config_;
    config.parallel.strategy =
        stage == 0 ? config::Strategy::ddp : config::Strategy::zero;
    if (stage > 0) config.parallel.zero_stage = stage;
    return config;
  }

  // Trains on so many ranks, in processes; returns what rank 0 has shown.
  Texts texts_of(const std::string& name, const config::Config& config, int ranks) {
    const int port = test::free_port();
    const auto folder = folder_.path() / name;
    test::as_processes(ranks, [&](int rank) {
      auto world = comm::join(test::environment_of(rank, ranks, port), {});
      test::run_in(folder, config, world);
      world.close();
    });
    const auto run = run::RunDirectory::open(folder / "runs" / "r");
    Texts texts;
    for (const auto& event : run::last_events(run.events(), 100)) {
      if (event.kind != "sample") continue;
      std::string line;
      for (const auto& field : event.fields) {
        std::visit([&](const auto& value) { line += str(value, "|"); }, field.value);
      }
      texts.push_back(line);
    }
    return texts;
  }

  files::TemporaryDirectory folder_;
  config::Config config_;
};

TEST_F(SharedPrompts, StageThreeShowsTheTextsOfDdp) {
  for (const bool lora : {false, true}) {
    for (const bool average : {false, true}) {
      config_.lora.rank = lora ? 2 : 0;
      config_.ema.enabled = config_.ema.evaluate = average;
      config_.ema.decay = 0.5;
      const auto name = str(lora ? "lora" : "all", average ? "_ema" : "");
      for (const int ranks : {2, 3}) {
        const auto ddp = texts_of(str(name, ranks, "ddp"), at_stage(0), ranks);
        ASSERT_EQ(ddp.size(), 9) << "three prompts, before the run and twice in it";
        EXPECT_EQ(texts_of(str(name, ranks, "zero"), at_stage(3), ranks), ddp)
            << name << " on " << ranks << " ranks";
      }
    }
  }
}

// What a rank takes while texts are continued, beside what it had, of the bytes of the
// model.
double part_of_model(comm::World& world, const config::Config& config,
                     const run::RunDirectory& run) {
  torch::manual_seed(3);
  auto model = models::build(config.model, {.input = {48}, .num_classes = 257});
  double bytes = 0;
  for (const auto& parameter : model->parameters()) {
    bytes += static_cast<double>(parameter.nbytes());
  }
  auto strategy = parallel::make_strategy(*test::resolved(config), *model, world);
  monitor::Console console({.write = [](std::string_view) {}});
  Reporter reporter({run, console}, config.monitor,
                    {.rank = world.rank(), .ranks = world.size()});
  const Prompts prompts({config.eval, config.model, config.data}, *model, reporter);
  const memory::MemoryMeter meter(torch::kCPU);
  const auto before = static_cast<double>(meter.used_bytes());
  prompts.show(0, {world, *strategy});
  return (static_cast<double>(meter.peak_bytes()) - before) / bytes;
}

// Most of this model is in twelve blocks, of which two or three are whole.
TEST_F(SharedPrompts, NobodyHasTheWholeModel) {
  config_.model.hidden = 96;
  config_.model.layers = 12;
  const int port = test::free_port();
  const auto run =
      run::RunDirectory::create(folder_.path() / "runs", {.name = "memory"});
  test::as_processes(2, [&](int rank) {
    auto world = comm::join(test::environment_of(rank, 2, port), {});
    const auto part = part_of_model(world, at_stage(3), run);
    EXPECT_LT(part, 0.4) << "rank " << rank;
    EXPECT_GT(part, 0.1) << "nothing was gathered";
    world.close();
  });
}

// A rank that can not go on lets the others go.
TEST_F(SharedPrompts, AnErrorOnTheFirstRankLeavesNobodyWaiting) {
  const int port = test::free_port();
  const auto run =
      run::RunDirectory::create(folder_.path() / "runs", {.name = "fails"});
  config_.model.layers = 2;
  test::as_processes(2, [&](int rank) {
    auto world = comm::join(test::environment_of(rank, 2, port), {});
    torch::manual_seed(3);
    auto model = models::build(config_.model, {.input = {48}, .num_classes = 257});
    auto strategy =
        parallel::make_strategy(*test::resolved(at_stage(3)), *model, world);
    monitor::Console console({.write = [](std::string_view) {}});
    Reporter reporter({run, console}, config_.monitor, {.rank = rank, .ranks = 2});
    auto config = config_;
    config.model.heads = 3;  // do not divide the width: the decoder refuses them
    const Prompts prompts({config.eval, config.model, config.data}, *model, reporter);
    if (rank == 0) {
      test::error_text(Fault::config, [&] { prompts.show(0, {world, *strategy}); });
    } else {
      prompts.show(0, {world, *strategy});
    }
    world.cpu().barrier();  // both are here
    world.close();
  });
}

}  // namespace
}  // namespace lockstep::train
