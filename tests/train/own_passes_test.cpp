// A gpt whose passes are written out, in a run: it computes the loss as well.
#include "lockstep/train/own_passes.h"

#include <filesystem>
#include <thread>

#include "lockstep/checkpoint/load.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/comm/join.h"
#include "lockstep/kernels/gemm.h"
#include "lockstep/monitor/metrics.h"
#include "lockstep/train/callbacks.h"
#include "lockstep/train/kernel_choices.h"
#include "lockstep/train/trainer.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/train/small_data.h"

namespace lockstep::train {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

class OwnPasses : public ::testing::Test {
 protected:
  // Prompts do not count, so the loss is of some tokens only. Seven texts in batches of
  // four: the last one of an epoch is shorter.
  OwnPasses() {
    const auto texts = folder_.path() / "texts";
    fs::create_directories(texts);
    std::string lines;
    for (const auto* word : {"one", "two", "three", "four", "five", "six", "seven"}) {
      lines += str(R"({"prompt": "What is )", word, R"(?", "completion": " A number )",
                   word, R"(."})", "\n");
    }
    test::write_file(texts / "train.jsonl", lines);
    test::write_file(texts / "val.jsonl", lines);
    config_ = test::quick_config();
    config_.model.name = "gpt";
    config_.model.hidden = 64;
    config_.model.layers = 2;
    config_.model.heads = 2;
    config_.data.name = "text";
    config_.data.dir = texts.string();
    config_.data.sequence = 48;
    config_.data.text.pack = false;
    config_.data.train_samples = config_.data.eval_samples = 0;
    config_.data.text.tokenizer = test::write_byte_tokenizer(folder_.path()).string();
    config_.batch.global = 4;
    config_.batch.micro = 3;
    config_.optim.lr = 1e-3;
    config_.optim.clip_norm = 1;
    config_.train.steps = 9;
  }

  struct Ran {
    std::vector<double> losses;
    std::string weights;  // bytes of the file
    fs::path file;
  };
  Ran run(const std::string& name, const RunHooks& hooks = {}) {
    const auto runs = folder_.path() / "runs";
    if (!fs::exists(runs / name)) run::RunDirectory::create(runs, {.name = name});
    const auto directory = run::RunDirectory::open(runs / name);
    monitor::Console console({.write = [](std::string_view) {}});
    const StopRequest stop;
    comm::JoinOptions options;
    if (config_.parallel.device == config::Device::cuda) {
      options.device = torch::Device(torch::kCUDA, 0);
    }
    auto world = comm::join({}, options);
    Reporter reporter({directory, console}, config_.monitor, {});
    const auto result =
        train(test::resolved(config_), {directory, reporter, stop, world}, hooks);
    Ran ran{.losses = {},
            .weights = test::read_file(result.weights),
            .file = result.weights};
    for (const auto& line : monitor::read_metrics(directory.metrics())) {
      if (line.split == monitor::Split::train) ran.losses.push_back(line.loss);
    }
    return ran;
  }

  std::shared_ptr<models::Model> load(const fs::path& file) const {
    auto model = models::build(config_.model, {.input = {48}, .num_classes = 257});
    checkpoint::load_weights(file, *model, {});
    return model;
  }

  // Token files, whose samples are all of one length, which graphs need.
  void use_gpu() {
    std::vector<std::int32_t> header(256);
    header[0] = 20240520, header[1] = 1, header[2] = 7 * 48 + 1;
    std::string bytes(reinterpret_cast<const char*>(header.data()), 1024);
    for (std::uint16_t i = 0; i < header[2]; ++i) {
      const std::uint16_t token = static_cast<std::uint16_t>(i * i % 257);
      bytes.append(reinterpret_cast<const char*>(&token), 2);
    }
    const auto tokens = folder_.path() / "tokens";
    fs::create_directories(tokens);
    test::write_file(tokens / "train.bin", bytes);
    test::write_file(tokens / "val.bin", bytes);
    config_.data.name = "tokens";
    config_.data.dir = tokens.string();
    config_.data.classes = 257;
    config_.data.text = {};
    config_.parallel.device = config::Device::cuda;
    config_.data.pin_memory = true;
    config_.precision.mode = config::Precision::bf16_params;  // then they are taken
  }

  files::TemporaryDirectory folder_;
  config::Config config_;
};

TEST_F(OwnPasses, TrainAsAutogradDoes) {
  const auto plain = run("plain");
  config_.model.own_backward = true;
  const auto own = run("own");
  ASSERT_EQ(own.losses.size(), plain.losses.size());
  for (std::size_t i = 0; i < own.losses.size(); ++i) {
    EXPECT_NEAR(own.losses[i], plain.losses[i], 1e-5) << "sums in another order, " << i;
  }
  const auto is = load(own.file), wanted = load(plain.file);
  const auto expected = wanted->named_parameters();
  for (const auto& item : is->named_parameters()) {
    // AdamW divides by the size of a gradient, which enlarges differences of small
    // ones.
    EXPECT_LT((item.value() - expected[item.key()]).abs().max().item<double>(), 5e-5)
        << item.key();
  }
}

TEST_F(OwnPasses, LossesThatTheyDoNotHaveAreTheTasks) {
  config_.task.label_smoothing = 0.1;
  const auto plain = run("plain");
  config_.model.own_backward = true;
  const auto own = run("own");
  for (std::size_t i = 0; i < own.losses.size(); ++i) {
    EXPECT_NEAR(own.losses[i], plain.losses[i], 1e-5) << "sums in another order, " << i;
  }
}

bool has_gpu_kernels() {
  return torch::cuda::is_available() && kernels::gemms_available();
}

TEST_F(OwnPasses, OnAGpuGraphsAndRepeatedRunsHaveTheSameBits) {
  if (!has_gpu_kernels()) GTEST_SKIP() << "no GPU, or no kernels of ours";
  use_gpu();
  config_.train.steps = 40;
  config_.train.graph = config::Graph::off;
  const auto first = run("first"), second = run("second");
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_TRUE(first.weights == second.weights);
  config_.train.graph = config::Graph::on;
  const auto held = run("held");
  EXPECT_EQ(held.losses, first.losses);
  EXPECT_TRUE(held.weights == first.weights);
}

// Ends as if the power had gone.
struct Blackout : Callback {
  void on_step_begin(const RunContext& m, const data::Batch&) override {
    if (m.step == 25) throw std::runtime_error("blackout");
  }
  bool watches_passes() const override { return false; }
};

TEST_F(OwnPasses, OnAGpuAResumedRunHasTheBitsOfAnUnbrokenOne) {
  if (!has_gpu_kernels()) GTEST_SKIP() << "no GPU, or no kernels of ours";
  use_gpu();
  config_.train.steps = 40;
  config_.train.graph = config::Graph::on;
  const auto unbroken = run("unbroken");
  config_.checkpoint.every = 10;
  EXPECT_THROW(run("cut", {.callbacks = {std::make_shared<Blackout>()}}),
               std::runtime_error);
  EXPECT_TRUE(run("cut").weights == unbroken.weights);
}

TEST_F(OwnPasses, OnAGpuLossesAreThoseOfThePlainModel) {
  if (!has_gpu_kernels()) GTEST_SKIP() << "no GPU, or no kernels of ours";
  use_gpu();
  config_.train.steps = 40;
  const auto own = run("own");
  config_.model.own_backward = false;
  const auto plain = run("plain");
  ASSERT_EQ(own.losses.size(), plain.losses.size());
  for (std::size_t i = 0; i < own.losses.size(); ++i) {
    // bf16 has eight bits; the sums of a step average that out.
    EXPECT_NEAR(own.losses[i] / plain.losses[i], 1, 0.02) << i;
  }
}

TEST_F(OwnPasses, AreTakenOnAGpuWhereTheyCanBeUsed) {
  const models::Shape shape{.input = {48}, .num_classes = 257};
  EXPECT_EQ(obstacle_to_own_passes(config_, shape, false), "they need a GPU");
  if (!kernels::gemms_available()) {
    EXPECT_THAT(obstacle_to_own_passes(config_, shape, true), HasSubstr("this build"));
    return;
  }
  config_.precision.mode = config::Precision::bf16;
  EXPECT_THAT(obstacle_to_own_passes(config_, shape, true),
              HasSubstr("precision.mode=bf16_params, not bf16"));
  config_.precision.mode = config::Precision::bf16_params;
  EXPECT_EQ(obstacle_to_own_passes(config_, shape, true), "");
  EXPECT_TRUE(
      with_passes(config_, {.shape = shape, .is_cuda = true}).own_backward.value());
  config_.lora.rank = 4;
  EXPECT_THAT(obstacle_to_own_passes(config_, shape, true), HasSubstr("lora.rank"));
  EXPECT_FALSE(
      with_passes(config_, {.shape = shape, .is_cuda = true}).own_backward.value());
  config_.model.own_backward = true;
  EXPECT_TRUE(
      with_passes(config_, {.shape = shape, .is_cuda = true}).own_backward.value())
      << "what is set stays, and is refused by the model";
}

class TellsChoices : public models::Model, public models::OwnBackward {
 public:
  torch::Tensor forward(const torch::Tensor& input) override { return input; }
  models::OwnBackward* own_backward() noexcept override { return this; }
  Named forward_kept(const Named& inputs) override { return inputs; }
  void backward(const Named&, GradientSink&) override {}
  void prepare(std::int64_t batch, at::IntArrayRef sample) override {
    prepared.emplace_back(batch, sample.vec());
    if (batch > room)
      throw std::runtime_error("DefaultCPUAllocator: can't allocate memory");
  }
  void release_memory() override { ++releases; }
  std::string choices() const override { return chosen; }
  void use_choices(const std::string& text) override { given = text; }
  std::string chosen, given;
  std::vector<std::pair<std::int64_t, std::vector<std::int64_t>>> prepared;
  std::int64_t room = 1000;
  int releases = 0;
};

TEST(KernelChoices, AllRanksTakeThoseOfTheFirst) {
  const files::TemporaryDirectory folder;
  const auto file = folder.path() / "kernels.txt";
  const std::vector<std::int64_t> row{32};
  auto worlds = comm::join_threads({torch::kCPU, torch::kCPU, torch::kCPU}, {});
  const auto as_rank = [&](comm::World& world) {
    TellsChoices model;
    KernelChoices choices(model, {.run = {}, .machine = file});
    model.chosen = str("measured on ", world.rank(), "\n");
    const BatchCut batch{.global = 14, .largest = 5, .micro = 3, .sample = row};
    for (int step = 0; step < 3; ++step) choices.agree(batch, world);
    const auto size = [&](std::int64_t samples) { return std::pair(samples, row); };
    if (world.rank() == 0) {
      EXPECT_THAT(model.prepared, testing::ElementsAre(size(3), size(2)))
          << "once; shares of 5 and of 4";
      EXPECT_EQ(model.given, "");
    } else {
      EXPECT_TRUE(model.prepared.empty());
      EXPECT_EQ(model.given, "measured on 0\n");
    }
    model.chosen = "smaller pieces\n";
    choices.agree({.global = 14, .largest = 5, .micro = 2, .sample = row}, world);
    EXPECT_EQ(model.given, world.rank() == 0 ? "" : "smaller pieces\n");
  };
  std::vector<std::thread> threads;
  for (auto& world : worlds) threads.emplace_back([&] { as_rank(world); });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(test::read_file(file), "measured on 0\nsmaller pieces\n");
}

// What Step makes of them: as many passes as are needed, of one size, or of two that
// differ by one.
TEST(KernelChoices, TheSizesAreThoseOfTheMicroBatches) {
  using testing::ElementsAre;
  const auto sizes = [](BatchCut batch, std::int64_t ranks) {
    const auto all = micro_batches_of(batch, ranks);
    return std::vector<std::int64_t>(all.begin(), all.end());
  };
  EXPECT_THAT(sizes({.global = 64, .largest = 64, .micro = 32}, 1), ElementsAre(32));
  EXPECT_THAT(sizes({.global = 32, .largest = 32, .micro = 21}, 1), ElementsAre(16));
  EXPECT_THAT(sizes({.global = 7, .largest = 7, .micro = 3}, 1), ElementsAre(3, 2));
  EXPECT_THAT(sizes({.global = 4, .largest = 4, .micro = 8}, 1), ElementsAre(4));
  // Shares of 4 and of 3: two passes of each, though one would do for the smaller.
  const BatchCut cut{.global = 7, .largest = 4, .micro = 3};
  EXPECT_THAT(sizes(cut, 2), ElementsAre(3, 2));
  auto match = cut;
  match.match = true;
  EXPECT_THAT(sizes(match, 2), ElementsAre(2, 1));
  // The last batch of an epoch may leave ranks without a sample.
  EXPECT_THAT(sizes({.global = 1, .largest = 1, .micro = 3}, 2), ElementsAre(1));
}

TEST(KernelChoices, ABatchThatIsTooLargeToMeasureIsLeftToThePass) {
  auto world = comm::join({}, {});
  TellsChoices model;
  model.room = 2;
  KernelChoices choices(model, {});
  const std::vector<std::int64_t> row{32};
  EXPECT_NO_THROW(choices.agree({8, 8, 4, row}, world));
  EXPECT_EQ(model.releases, 1);
}

TEST(KernelChoices, OutliveARun) {
  const files::TemporaryDirectory folder;
  const auto file = folder.path() / "state" / "kernels.txt";
  TellsChoices first;
  KernelChoices of_first(first, {.run = {}, .machine = file});
  EXPECT_EQ(first.given, "");
  of_first.keep();
  EXPECT_FALSE(fs::exists(file)) << "nothing was chosen";
  first.chosen = "a 1\nb 2\n";
  of_first.keep();
  TellsChoices second;
  KernelChoices of_second(second, {.run = {}, .machine = file});
  EXPECT_EQ(second.given, "a 1\nb 2\n");
  // What another run has added meanwhile stays.
  first.chosen = "a 1\nb 2\nd 4\n";
  of_first.keep();
  second.chosen = "b 2\nc 3\n";
  of_second.keep();
  EXPECT_EQ(test::read_file(file), "a 1\nb 2\nd 4\nc 3\n");
}

// Two runs that start together measure the same shape, and may find different
// algorithms.
TEST(KernelChoices, OfARunAreItsOwnWhenItResumes) {
  const files::TemporaryDirectory folder;
  const auto machine = folder.path() / "state" / "kernels.txt";
  const auto run = folder.path() / "kernels.txt";
  TellsChoices ours;
  KernelChoices of_ours(ours, {.run = run, .machine = machine});
  test::write_file(machine, "shape theirs\nother 1\n");
  ours.chosen = "shape ours\n";
  of_ours.keep();
  TellsChoices resumed;
  KernelChoices of_resumed(resumed, {.run = run, .machine = machine});
  EXPECT_EQ(resumed.given, "shape ours\nshape theirs\nother 1\n");
  // A run directory that is gone is not made again.
  KernelChoices gone(ours,
                     {.run = folder.path() / "gone" / "kernels.txt", .machine = {}});
  gone.keep();
  EXPECT_FALSE(fs::exists(folder.path() / "gone"));
}

TEST(KernelChoices, AFileThatCanNotBeUsedCostsNoRun) {
  const files::TemporaryDirectory folder;
  test::write_file(folder.path() / "state", "a file, not a folder");
  TellsChoices model;
  model.chosen = "a 1\n";
  KernelChoices choices(
      model, {.run = {}, .machine = folder.path() / "state" / "kernels.txt"});
  EXPECT_NO_THROW(choices.keep());
  KernelChoices nowhere(model, {});
  EXPECT_NO_THROW(nowhere.keep());
}

}  // namespace
}  // namespace lockstep::train
