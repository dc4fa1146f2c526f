// A crash at any instant: the old checkpoints, or the old and the new, never less.
#include <cerrno>

#include "tests/storage/support/power_cut.h"
#include "tests/storage/support/small_checkpoint.h"

namespace lockstep::test {
namespace {

using storage::Depth;
using storage::FileSystem;

struct Killed {};

// Told of every operation; throws at the one that is to fail.
struct FaultAt {
  int countdown;
  int error;  // 0: killed, so that nothing happens afterwards either
  bool dead = false;

  void operator()(const Operation& operation) {
    if (dead) throw Killed();
    if (countdown-- != 0) return;
    if (error != 0) files::fail("use", operation.path, error);
    dead = true;
    throw Killed();
  }
};

// A life of a run: three steps are saved, one of them twice, and the oldest is removed.
// Each entry is what is certain when it has returned.
struct Deed {
  std::int64_t step;
  float seed;
};
const std::vector<Deed> kLife = {{1, 1}, {2, 2}, {2, 3}, {3, 4}};

void do_deed(FileSystem& files, const Path& checkpoints, const Deed& deed) {
  save_small(files, checkpoints,
             {.step = deed.step, .seed = deed.seed, .ranks = 2, .loss = deed.seed});
  storage::prune(files, checkpoints, {.keep = {.last = 2}});
}

// As every one of the life's checkpoints is: of a step, one of the versions.
void expect_a_version(const Path& checkpoint, std::int64_t step, std::size_t done) {
  std::string problems;
  // The save that was interrupted may have been in time.
  for (std::size_t i = 0; i < std::min(done + 1, kLife.size()); ++i) {
    if (kLife[i].step != step) continue;
    const storage::Reader reader(checkpoint);
    std::string got(60, '\0');
    reader.read("model.fc.weight", std::as_writable_bytes(std::span(got)));
    if (got == small_tensors(kLife[i].seed)[1].bytes) {
      return expect_small(checkpoint, kLife[i].seed);
    }
  }
  ADD_FAILURE() << checkpoint << " is none of the versions of step " << step;
}

// After `done` deeds and an interrupted one.
void expect_usable(const Path& checkpoints, std::size_t done) {
  const auto found = storage::newest_valid(checkpoints, Depth::full);
  for (const auto& skipped : found.skipped) ADD_FAILURE() << skipped.reason;
  const auto entries = storage::list_steps(checkpoints);
  for (const auto& entry : entries) expect_a_version(entry.path, entry.step, done);
  if (done == 0) return;
  ASSERT_TRUE(found.path.has_value());
  EXPECT_GE(found.manifest.step, kLife[done - 1].step);
  const auto last = storage::named(checkpoints, storage::kLast);
  ASSERT_TRUE(last.has_value());
  storage::verify(*last, Depth::full);
}

// The run starts again and goes on.
void expect_goes_on(const Path& checkpoints, std::size_t done) {
  HookedFiles files([](const Operation&) {});
  files.syncs = false;
  storage::clean_up(files, checkpoints);
  for (const auto& name : storage::names_in(checkpoints)) {
    EXPECT_NE(name.front(), '.') << name << " was not cleaned up";
  }
  expect_usable(checkpoints, done);
  for (auto i = done; i < kLife.size(); ++i) do_deed(files, checkpoints, kLife[i]);
  EXPECT_THAT(names_in(checkpoints),
              testing::ElementsAre("best", "last", "step_2", "step_3"));
  expect_small(checkpoints / "step_2", 3);
  expect_small(checkpoints / "best", 3);
  expect_small(checkpoints / "last", 4);
}

// Lives until the fault; how many deeds were done. A failed one is tried again once, as
// the next save would be.
std::size_t live(HookedFiles& files, const Path& checkpoints, bool& hit) {
  for (std::size_t done = 0; done < kLife.size(); ++done) {
    try {
      do_deed(files, checkpoints, kLife[done]);
    } catch (const Killed&) {
      hit = true;
      return done;
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::io) << error.what();
      hit = true;
      storage::abandon_save(files, checkpoints, kLife[done].step);
      expect_usable(checkpoints, done);
      do_deed(files, checkpoints, kLife[done]);
    }
  }
  return kLife.size();
}

class Crash : public testing::TestWithParam<bool> {};

TEST_P(Crash, AKillAtEveryOperationLeavesWhatWasThere) {
  bool hit = true;
  int points = 0;
  for (int n = 0; hit; ++n) {
    hit = false;
    const MemoryDirectory folder;
    HookedFiles files{FaultAt{.countdown = n, .error = 0}};
    files.syncs = false;
    files.can_exchange = GetParam();
    const auto checkpoints = folder.path() / "checkpoints";
    const auto done = live(files, checkpoints, hit);
    SCOPED_TRACE(str("killed at operation ", n, ", after ", done, " saves"));
    expect_usable(checkpoints, done);
    expect_goes_on(checkpoints, done);
    if (testing::Test::HasFailure()) return;
    ++points;
  }
  EXPECT_GT(points, 100);
}

TEST_P(Crash, AnErrorAtEveryOperationLeavesWhatWasThereAndTheNextSaveWorks) {
  for (const int error : {ENOSPC, EIO}) {
    bool hit = true;
    for (int n = 0; hit; ++n) {
      hit = false;
      const MemoryDirectory folder;
      HookedFiles files{FaultAt{.countdown = n, .error = error}};
      files.syncs = false;
      files.can_exchange = GetParam();
      const auto checkpoints = folder.path() / "checkpoints";
      SCOPED_TRACE(str("error ", error, " at operation ", n));
      EXPECT_EQ(live(files, checkpoints, hit), kLife.size());
      expect_goes_on(checkpoints, kLife.size());
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST_P(Crash, APowerCutAtEveryOperationLosesOnlyWhatWasNotPublished) {
  const MemoryDirectory folder;
  const auto checkpoints = folder.path() / "checkpoints";
  std::vector<Operation> log;
  std::vector<std::size_t> ends;  // where in the log each deed was done
  HookedFiles files([&](const Operation& operation) { log.push_back(operation); });
  files.can_exchange = GetParam();
  for (const auto& deed : kLife) {
    do_deed(files, checkpoints, deed);
    ends.push_back(log.size());
  }
  PowerCut disk(folder.path());
  std::size_t done = 0;
  for (std::size_t n = 0; n <= log.size(); ++n) {
    while (done < ends.size() && ends[done] <= n) ++done;
    for (const auto data : {Unsynced::kept, Unsynced::lost, Unsynced::torn}) {
      for (const auto names : {Unsynced::kept, Unsynced::lost, Unsynced::torn}) {
        const MemoryDirectory found;
        disk.restore(found.path(), data, names);
        SCOPED_TRACE(str("power cut before operation ", n, " of ", log.size(),
                         ", data ", static_cast<int>(data), ", names ",
                         static_cast<int>(names), ", after ", done, " saves"));
        expect_usable(found.path() / "checkpoints", done);
        expect_goes_on(found.path() / "checkpoints", done);
        if (testing::Test::HasFailure()) return;
      }
    }
    if (n < log.size()) disk.apply(log[n]);
  }
}

INSTANTIATE_TEST_SUITE_P(FileSystems, Crash, testing::Bool(), [](const auto& given) {
  return given.param ? "ThatExchange" : "ThatCanNotExchange";
});

}  // namespace
}  // namespace lockstep::test
