// What a save writes: the tensors as they were when it began, wherever they live.
#include "lockstep/checkpoint/saver.h"

#include <atomic>
#include <map>
#include <memory>

#include "lockstep/base/files.h"
#include "lockstep/base/text.h"
#include "lockstep/storage/catalog.h"
#include "lockstep/storage/reader.h"
#include "tests/storage/support/hooked_files.h"
#include "tests/support/support.h"

namespace lockstep::checkpoint {
namespace {

// A rank that is alone and has nothing else to do.
Saver::SaveOutcome finish(Saver& saver) {
  while (true) {
    saver.wait(std::chrono::milliseconds(20));
    if (auto outcome = saver.on_ballots({{.flags = saver.flags()}})) {
      EXPECT_TRUE(outcome->saved) << outcome->text;
      return *outcome;
    }
  }
}

torch::Tensor read(const storage::Reader& reader, const torch::Tensor& like,
                   const std::string& name) {
  auto tensor = torch::empty(like.sizes(), like.scalar_type());
  reader.read(name,
              {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()});
  return tensor;
}

// One of everything: other dtypes and orders, sizes that no page divides, no elements,
// and more than two huge pages, so that files and copies have several parts.
std::vector<std::pair<std::string, torch::Tensor>> some_tensors(torch::Device device) {
  torch::manual_seed(7);
  const auto on = torch::device(device);
  auto conv = torch::randn({8, 3, 5, 5}).contiguous(torch::MemoryFormat::ChannelsLast);
  return {{"model.large", torch::randn({1234, 4321}, on)},
          {"model.conv", conv.to(device)},
          {"model.half", torch::randn({7, 3}, on).to(torch::kBFloat16)},
          {"model.count", torch::randint(0, 1000, {}, on.dtype(torch::kInt64))},
          {"model.empty", torch::empty({0, 3}, on)},
          {"optimizer.on_host", torch::randn({1001, 33})},
          {"statistics.mean", torch::randn({77}, on)}};
}

void saves_what_was(torch::Device device) {
  const torch::NoGradGuard no_grad;
  const files::TemporaryDirectory folder;
  Saver saver({.checkpoints = folder.path(), .device = device});
  std::vector<std::pair<std::string, torch::Tensor>> tensors = some_tensors(device);
  // The second save finds its places, the third has one tensor more.
  for (const std::int64_t step : {1, 2, 3}) {
    if (step == 3) {
      tensors.emplace_back("model.new",
                           torch::randn({3000, 1000}, torch::device(device)));
    }
    Pieces pieces;
    std::map<std::string, torch::Tensor> before;
    for (const auto& [name, tensor] : tensors) {
      const bool now = text::starts_with(name, "statistics");
      pieces.push_back(whole_piece(name, tensor, now));
      before[name] = tensor.cpu().contiguous().clone();
    }
    saver.begin(pieces, {.step = step});
    // A forward pass changes these, an update the others.
    for (const auto& [name, tensor] : tensors) {
      if (text::starts_with(name, "statistics")) tensor.add_(1);
    }
    saver.fence();
    for (const auto& [name, tensor] : tensors) tensor.add_(1);
    const auto outcome = finish(saver);
    EXPECT_GT(outcome.held_bytes, outcome.bytes);
    storage::verify(folder.path() / str("step_", step), storage::Depth::full);
    const storage::Reader reader(folder.path() / str("step_", step));
    for (const auto& [name, tensor] : before) {
      EXPECT_TRUE(torch::equal(read(reader, tensor, name), tensor)) << step << name;
    }
  }
}

TEST(Saver, WritesTensorsAsTheyWereWhenItBegan) {
  saves_what_was(torch::kCPU);
}

TEST(SaverGpu, WritesTensorsAsTheyWereWhenItBegan) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  saves_what_was({torch::kCUDA, 0});
}

// Two ranks of one process, each with its part.
struct TwoRanks {
  TwoRanks(const files::Path& folder, storage::FileSystem& files) {
    for (int rank = 0; rank < 2; ++rank) {
      savers.push_back(std::make_unique<Saver>(Saver::Options{
          .checkpoints = folder, .rank = rank, .ranks = 2, .files = &files}));
    }
  }

  // Whether it was saved; both are told the same.
  bool save(std::int64_t step, float value) {
    for (std::size_t rank = 0; rank < 2; ++rank) {
      const auto name = str("model.", rank);
      savers[rank]->begin({whole_piece(name, torch::full({50}, value))},
                          {.step = step, .world_size = 2});
      savers[rank]->fence();
    }
    std::vector<bool> saved;
    while (saved.empty()) {
      savers[0]->wait(std::chrono::milliseconds(1));
      const std::vector<comm::Ballot> ballots{{.flags = savers[0]->flags()},
                                              {.flags = savers[1]->flags()}};
      for (const auto& saver : savers) {
        if (const auto outcome = saver->on_ballots(ballots)) {
          saved.push_back(outcome->saved);
        }
      }
    }
    EXPECT_EQ(saved.size(), 2U);
    EXPECT_EQ(saved.front(), saved.back());
    return saved.front();
  }

  std::vector<std::unique_ptr<Saver>> savers;
};

// Every operation of a save fails once, on whichever rank makes it: the save before
// stays, both ranks know, and the next one is saved.
TEST(Saver, AnyOperationMayFailAndNothingIsLost) {
  int failed = 0;
  for (int bad = 1;; ++bad) {
    const files::TemporaryDirectory folder;
    std::atomic<int> count = 0;
    std::atomic<bool> armed = false;
    test::HookedFiles files([&](const test::Operation&) {
      if (armed && ++count == bad) throw Error(Fault::io, "No space left on device");
    });
    files.syncs = false;
    TwoRanks ranks(folder.path(), files);
    ASSERT_TRUE(ranks.save(1, 1));
    armed = true;
    const bool saved = ranks.save(2, 2);
    armed = false;
    failed += saved ? 0 : 1;
    const auto found = storage::newest_valid(folder.path(), storage::Depth::full);
    ASSERT_TRUE(found.path) << bad;
    EXPECT_GE(found.manifest.step, saved ? 2 : 1) << bad;
    ASSERT_TRUE(ranks.save(3, 3)) << bad;
    EXPECT_EQ(storage::newest_valid(folder.path(), storage::Depth::full).manifest.step,
              3);
    if (count < bad) break;  // the save has no more operations
  }
  EXPECT_GT(failed, 10);
}

// The others must not wait for a part that never comes.
TEST(Saver, WithoutMemoryForItsCopiesItFailsLikeAnyOtherSave) {
  const files::TemporaryDirectory folder;
  const auto huge = torch::zeros({1}).expand({std::int64_t{1} << 50});
  Saver saver({.checkpoints = folder.path()});
  Pieces pieces(1);
  pieces[0].name = "model.w";
  pieces[0].shape = {std::int64_t{1} << 50};
  pieces[0].data = huge;
  saver.begin(pieces, {.step = 3});
  saver.fence();
  ASSERT_TRUE(saver.is_busy());
  EXPECT_EQ(saver.flags(), comm::kSaveFailed);
  const auto outcome = saver.on_ballots({{.flags = saver.flags()}});
  ASSERT_TRUE(outcome);
  EXPECT_FALSE(outcome->saved);
  EXPECT_THAT(outcome->text, testing::HasSubstr("alloc"));
  EXPECT_FALSE(saver.is_busy());
  // And the next one is saved.
  pieces[0].shape = {2};
  pieces[0].data = torch::ones({2});
  saver.begin(pieces, {.step = 4});
  finish(saver);
}

}  // namespace
}  // namespace lockstep::checkpoint
