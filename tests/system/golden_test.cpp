// Losses, metrics and weights of short runs, as they were recorded before models, tasks
// and data became named tensors: a change of the step may not change a bit of them.
// After a wanted change:
//   LOCKSTEP_UPDATE_SNAPSHOTS=1 build/tests/test_system --gtest_filter='GoldenRuns.*'
#include <cmath>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "lockstep/base/files.h"
#include "tests/system/command.h"

namespace lockstep::test {
namespace {

struct GoldenRun {
  std::string name;
  std::vector<std::string> knobs;
};

const std::vector<GoldenRun>& golden_runs() {
  static const std::vector<GoldenRun> runs{
      {"cnn", {}},
      {"mlp_class_weights",
       {"model.name=mlp", "batch.micro=8", "optim.name=sgd", "optim.lr=0.05",
        "data.class_weights=[1,2,0.5,1,1,3,1,1,1,0.25]", "optim.clip_norm=1"}},
      {"ranks",
       {"parallel.ranks=3", "comm.deterministic=true", "model.dropout=0.3",
        "data.train_samples=250", "data.eval_samples=61", "batch.global=48",
        "schedule.name=cosine", "eval.metrics=[top_k,f1,auroc,perplexity]",
        "eval.every=4"}},
      {"ranks_class_weights",
       {"parallel.ranks=2", "model.name=mlp", "data.balanced_loss=true",
        "batch.global=34", "ema.enabled=true", "parallel.shard_update=on",
        "eval.metrics=[per_class]"}},
      {"mixed_images",
       {"data.name=synthetic", "data.shape=[3,12,12]", "data.synthetic_samples=300",
        "augment.mixup=0.4", "augment.crop_padding=2", "augment.flip=0.5",
        "precision.mode=bf16", "batch.micro=16", "eval.sanity_batches=2"}},
      {"resnet9",
       {"data.name=synthetic", "data.shape=[3,16,16]", "data.synthetic_samples=100",
        "model.name=resnet9", "model.hidden=8", "memory.recompute_every=1",
        "batch.global=20", "train.steps=4", "early_stop.metric=accuracy",
        "eval.every=epoch"}},
  };
  return runs;
}

// The last bits depend on the instructions that the libraries choose for a processor,
// so the runs take those that every machine of today has. What is left is the maker:
// MKL has products of its own for each.
process::Output golden_command(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), binary("lockstep").string());
  return process::run({.arguments = std::move(arguments),
                       .environment = {{"ATEN_CPU_CAPABILITY", "avx2"},
                                       {"ONEDNN_MAX_CPU_ISA", "AVX2"},
                                       {"MKL_CBWR", "AVX2"}}},
                      std::chrono::minutes(2));
}

std::string processor_maker() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("vendor_id", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

// A line for each number that says what was computed; times and memory are left out.
std::vector<std::string> numbers_of(const Path& folder) {
  std::vector<std::string> lines;
  for (const auto& one : monitor::read_metrics(folder / "metrics.jsonl")) {
    const auto place = fmt::format(
        "{} {}", one.split == monitor::Split::train ? "train" : "eval", one.step);
    lines.push_back(fmt::format("{} loss {}", place, one.loss));
    for (const auto* name : {"accuracy", "gradient_norm", "lr", "f1", "auroc",
                             "perplexity", "accuracy_top_5", "accuracy_class_3"}) {
      const auto value = one.find(name);
      if (value) lines.push_back(fmt::format("{} {} {}", place, name, *value));
    }
  }
  return lines;
}

// FNV-1a: of what a file holds.
std::string digest_of(const Path& file) {
  std::uint64_t digest = 0xcbf29ce484222325ULL;
  for (const char byte : read_file(file)) {
    digest = (digest ^ static_cast<unsigned char>(byte)) * 0x100000001b3ULL;
  }
  return fmt::format("{:016x}", digest);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

void expect_near(const std::string& recorded, const std::string& now) {
  const auto cut = [](const std::string& line) { return line.rfind(' '); };
  EXPECT_EQ(recorded.substr(0, cut(recorded)), now.substr(0, cut(now)));
  const auto a = std::stod(recorded.substr(cut(recorded)));
  const auto b = std::stod(now.substr(cut(now)));
  // Accuracies are counts: on another maker's processor one of the 44 samples of a
  // window, whose two best scores are near, may fall to the other side.
  const bool is_count = now.find(" accuracy") != std::string::npos;
  EXPECT_NEAR(a, b, (is_count ? 0.025 : 0.02) * std::max(1.0, std::abs(a))) << now;
}

// Who made the processor, the weights, then the numbers.
std::vector<std::string> golden_lines(const Path& run) {
  auto lines = numbers_of(run);
  lines.insert(lines.begin(),
               {processor_maker(), "weights " + digest_of(run / "model.safetensors")});
  return lines;
}

void expect_recorded(const Path& path, const std::vector<std::string>& now) {
  const auto recorded = lines_of(read_file(path));
  ASSERT_EQ(recorded.size(), now.size());
  const bool same_maker = recorded[0] == now[0];
  for (std::size_t i = same_maker ? 1 : 2; i < now.size(); ++i) {
    if (same_maker) {
      EXPECT_EQ(recorded[i], now[i]);
    } else {
      expect_near(recorded[i], now[i]);
    }
  }
}

void check(const GoldenRun& golden) {
  const files::TemporaryDirectory folder;
  const auto place = folder.path() / "run";
  std::vector<std::string> command{"train",
                                   quick_recipe(),
                                   "--run-dir",
                                   place.string(),
                                   "train.steps=12",
                                   "parallel.threads=1",
                                   "train.log_every=1",
                                   "data.workers=2",
                                   "parallel.device=cpu"};
  for (const auto& knob : golden.knobs) command.push_back(knob);
  const auto output = golden_command(command);
  ASSERT_EQ(output.end.shell_status(), 0) << output.err;
  const auto now = golden_lines(place);
  const auto path = fixture("system/golden/" + golden.name + ".txt");
  if (std::getenv("LOCKSTEP_UPDATE_SNAPSHOTS") != nullptr) {
    std::string text;
    for (const auto& line : now) text += line + "\n";
    write_file(path, text);
  }
  expect_recorded(path, now);
}

}  // namespace

class GoldenRuns : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenRuns, AreAsTheyWere) {
  for (const auto& golden : golden_runs()) {
    if (golden.name == GetParam()) check(golden);
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenRuns,
                         ::testing::Values("cnn", "mlp_class_weights", "ranks",
                                           "ranks_class_weights", "mixed_images",
                                           "resnet9"),
                         [](const auto& one) { return one.param; });

// golden/before_tasks has been written by the version before tasks, whose numbers were
// recorded as it went on from there itself: they are never updated.
TEST(GoldenCheckpoint, OfTheVersionBeforeTasksGoesOnToTheSameBits) {
  const files::TemporaryDirectory folder;
  const auto saved = folder.path() / "saved", place = folder.path() / "run";
  std::filesystem::copy(fixture("system/golden/before_tasks"), saved);
  const auto output =
      golden_command({"train", fixture("system/golden/before_tasks.yaml").string(),
                      "--run-dir", place.string(), "--resume", saved.string()});
  ASSERT_EQ(output.end.shell_status(), 0) << output.err;
  EXPECT_THAT(output.out + output.err, testing::HasSubstr("resuming from step 6"));
  expect_recorded(fixture("system/golden/before_tasks.txt"), golden_lines(place));
}

}  // namespace lockstep::test
