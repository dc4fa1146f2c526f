#include "lockstep/storage/catalog.h"

#include <unistd.h>

#include "lockstep/storage/detail/mark.h"
#include "lockstep/storage/detail/names.h"
#include "tests/storage/support/small_checkpoint.h"

namespace lockstep::test {
namespace {

using storage::FileSystem;
using storage::PruneCandidate;
using storage::WatchedMetric;
using testing::ElementsAre;
using testing::IsEmpty;

std::vector<PruneCandidate> steps(std::initializer_list<std::int64_t> list) {
  std::vector<PruneCandidate> result;
  for (const auto step : list) result.push_back({.step = step});
  return result;
}

TEST(Retention, KeepsTheNewest) {
  EXPECT_THAT(storage::steps_to_remove(steps({30, 10, 20, 40}), {.last = 2}),
              ElementsAre(10, 20));
  EXPECT_THAT(storage::steps_to_remove(steps({1, 2}), {.last = 5}), IsEmpty());
}

TEST(Retention, NeverRemovesTheOnlyGoodOne) {
  EXPECT_THAT(storage::steps_to_remove(steps({10}), {.last = 0}), IsEmpty());
  std::vector<PruneCandidate> one_good = {{.step = 1}, {.step = 2, .good = false}};
  EXPECT_THAT(storage::steps_to_remove(one_good, {.last = 1}), ElementsAre(2));
  std::vector<PruneCandidate> none_good = {{.step = 1, .good = false},
                                           {.step = 2, .good = false}};
  EXPECT_THAT(storage::steps_to_remove(none_good, {.last = 1}), IsEmpty());
}

TEST(Retention, BadOnesDoNotCountAmongTheNewest) {
  std::vector<PruneCandidate> list = steps({1, 2, 3, 4});
  list[3].good = false;
  EXPECT_THAT(storage::steps_to_remove(list, {.last = 2}), ElementsAre(1, 4));
}

TEST(Retention, KeepsTheBestInBothDirectionsAndTheMilestones) {
  std::vector<PruneCandidate> list = steps({1, 2, 3, 4, 5, 6});
  const double values[] = {5, 1, 3, 2, 9, 4};
  for (std::size_t i = 0; i < 6; ++i)
    list[i].metric = WatchedMetric{"loss", values[i], false};
  EXPECT_THAT(storage::steps_to_remove(list, {.last = 1, .best = 2}),
              ElementsAre(1, 3, 5));
  EXPECT_THAT(storage::steps_to_remove(list, {.last = 1, .best = 0, .every = 3}),
              ElementsAre(1, 2, 4, 5));
  for (auto& item : list) item.metric->larger_is_better = true;
  EXPECT_THAT(storage::steps_to_remove(list, {.last = 1, .best = 1}),
              ElementsAre(1, 2, 3, 4));
}

class Catalog : public testing::Test {
 protected:
  Path save(std::int64_t step, std::optional<double> loss = {}) {
    return save_small(FileSystem::real(), folder_.path(),
                      {.step = step, .seed = static_cast<float>(step), .loss = loss});
  }
  const Path& place() const { return folder_.path(); }

  MemoryDirectory folder_;
};

TEST_F(Catalog, ADirectoryThatIsNotThereHasNoCheckpoints) {
  EXPECT_THAT(storage::list_steps(place() / "none"), IsEmpty());
  EXPECT_EQ(storage::newest_valid(place() / "none", storage::Depth::full).path,
            std::nullopt);
  EXPECT_EQ(storage::named(place() / "none", "best"), std::nullopt);
  write_file(place() / "file", "");
  EXPECT_THAT(storage::list_steps(place() / "file" / "none"), IsEmpty());
  EXPECT_THAT(storage::clean_up(FileSystem::real(), place() / "none"), IsEmpty());
}

TEST_F(Catalog, StepsAreListedAsNumbersAndOtherNamesAreNot) {
  for (const std::int64_t step : {9, 10, 100}) save(step);
  for (const auto* name :
       {"step_007", "step_", "step_1x", "other", ".step_5.partial"}) {
    std::filesystem::create_directories(place() / name);
  }
  std::vector<std::int64_t> found;
  for (const auto& entry : storage::list_steps(place())) found.push_back(entry.step);
  EXPECT_THAT(found, ElementsAre(9, 10, 100));
}

TEST_F(Catalog, BestAndLastAreLinksThatFollowWhatIsSaved) {
  save(1, 0.5);
  save(2, 0.3);
  save(3, 0.4);
  save(4);
  EXPECT_EQ(std::filesystem::read_symlink(place() / "best"), "step_2");
  EXPECT_EQ(std::filesystem::read_symlink(place() / "last"), "step_4");
  save(2, 0.9);  // again, and worse
  EXPECT_EQ(std::filesystem::read_symlink(place() / "best"), "step_3");
}

TEST_F(Catalog, ALostLinkIsFoundFromTheManifests) {
  save(1, 0.5);
  save(2, 0.7);
  std::filesystem::remove(place() / "best");
  std::filesystem::remove(place() / "last");
  std::filesystem::create_symlink("step_77", place() / "last");
  EXPECT_EQ(storage::named(place(), "best"), place() / "step_1");
  EXPECT_EQ(storage::named(place(), "last"), place() / "step_2");
}

TEST_F(Catalog, ALinkThatLeavesTheDirectoryIsNotFollowed) {
  save(1);
  std::filesystem::remove(place() / "last");
  std::filesystem::create_symlink("/etc", place() / "last");
  EXPECT_EQ(storage::named(place(), "last"), place() / "step_1");
}

TEST_F(Catalog, PruneRemovesByTheRulesAndPutsTheLinksRight) {
  save(1, 0.1);
  save(2, 0.9);
  save(3, 0.5);
  const auto plan = storage::prune(FileSystem::real(), place(),
                                   {.keep = {.last = 1}, .dry_run = true});
  EXPECT_THAT(plan.removed, ElementsAre(place() / "step_1", place() / "step_2"));
  EXPECT_GT(plan.freed_bytes, 1000);
  EXPECT_EQ(storage::list_steps(place()).size(), 3u);
  storage::prune(FileSystem::real(), place(), {.keep = {.last = 1, .best = 1}});
  EXPECT_THAT(names_in(place()), ElementsAre("best", "last", "step_1", "step_3"));
  storage::prune(FileSystem::real(), place(), {.keep = {.last = 1}});
  EXPECT_THAT(names_in(place()), ElementsAre("best", "last", "step_3"));
  EXPECT_EQ(std::filesystem::read_symlink(place() / "best"), "step_3");
}

TEST_F(Catalog, PruneLooksAtEveryByteOfWhatItKeeps) {
  for (const int step : {1, 2, 3}) save(step);
  damage(place() / "step_3/rank_1.safetensors");
  const auto plan = storage::prune(FileSystem::real(), place(),
                                   {.keep = {.last = 1}, .dry_run = true});
  EXPECT_THAT(plan.kept, ElementsAre(place() / "step_2"));
  const auto pruned =
      storage::prune(FileSystem::real(), place(), {.keep = {.last = 1}});
  EXPECT_THAT(names_in(place()), ElementsAre("last", "step_2"));
  EXPECT_EQ(std::filesystem::read_symlink(place() / "last"), "step_2");
  ASSERT_EQ(pruned.damaged.size(), 1u);
  EXPECT_EQ(pruned.damaged[0].path, place() / "step_3");
  EXPECT_THAT(pruned.damaged[0].reason, testing::HasSubstr("rank_1.safetensors"));
}

TEST_F(Catalog, WhatWasChangedSinceItWasWrittenIsReadAgain) {
  for (const int step : {1, 2, 3}) save(step);
  damage(place() / "step_3/rank_0.safetensors");
  const auto pruned =
      storage::prune(FileSystem::real(), place(),
                     {.keep = {.last = 1}, .trust = storage::Mark::written});
  EXPECT_EQ(pruned.damaged.size(), 1u);
  EXPECT_THAT(names_in(place()), ElementsAre("last", "step_2"));
}

TEST_F(Catalog, PruneRemovesNothingWhereNothingIsGood) {
  for (const int step : {1, 2}) damage(save(step) / "rank_0.safetensors");
  const auto pruned =
      storage::prune(FileSystem::real(), place(), {.keep = {.last = 1}});
  EXPECT_THAT(pruned.removed, IsEmpty());
  EXPECT_EQ(pruned.damaged.size(), 2u);
  EXPECT_THAT(names_in(place()), ElementsAre("last", "step_1", "step_2"));
}

TEST_F(Catalog, TheBestOfThoseThatAreGoodIsKept) {
  save(1, 0.3);
  damage(save(2, 0.1) / "rank_0.safetensors");
  save(3, 0.5);
  storage::prune(FileSystem::real(), place(), {.keep = {.last = 1, .best = 1}});
  EXPECT_THAT(names_in(place()), ElementsAre("best", "last", "step_1", "step_3"));
  EXPECT_EQ(std::filesystem::read_symlink(place() / "best"), "step_1");
}

TEST_F(Catalog, WhatANewerProgramWroteStaysAndCountsForNothing) {
  for (const int step : {1, 2}) save(step);
  const auto manifest = save(3) / "manifest.json";
  auto text = read_file(manifest);
  const std::string old = "\"format\": 1,";
  text.replace(text.find(old), old.size(), "\"format\": 2,");
  const auto rest = text.substr(text.find('\n') + 1);
  write_file(manifest, str("{\"digest\": \"", storage::to_hex(storage::digest_of(rest)),
                           "\",\n", rest));
  storage::prune(FileSystem::real(), place(), {.keep = {.last = 1}});
  EXPECT_THAT(names_in(place()), ElementsAre("last", "step_2", "step_3"));
}

// Reading it is an input/output error, as of a disk that fails.
void make_unreadable(const Path& file) {
  std::filesystem::remove(file);
  std::filesystem::create_symlink("/proc/self/mem", file);
}

TEST_F(Catalog, WhatCanNotBeReadStaysAndCountsForNothing) {
  for (const int step : {1, 2, 3}) save(step);
  make_unreadable(place() / "step_3/manifest.json");
  make_unreadable(save(4) / "manifest.json");
  const auto pruned =
      storage::prune(FileSystem::real(), place(), {.keep = {.last = 1}});
  EXPECT_THAT(names_in(place()), ElementsAre("last", "step_2", "step_3", "step_4"));
  EXPECT_THAT(pruned.damaged, IsEmpty());
  ASSERT_EQ(pruned.unreadable.size(), 2u);
  EXPECT_EQ(pruned.unreadable[0].path, place() / "step_3");
  EXPECT_THAT(pruned.unreadable[0].reason, testing::HasSubstr("Input/output error"));
}

// Found out only when every byte is wanted.
TEST_F(Catalog, BytesThatCanNotBeReadAreNoDamage) {
  for (const int step : {1, 2, 3}) save(step);
  std::filesystem::permissions(place() / "step_3/rank_0.safetensors",
                               std::filesystem::perms::none);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(place())) {
    if (entry.is_symlink()) continue;
    ASSERT_EQ(::chown(entry.path().c_str(), 65534, 65534), 0);
  }
  ASSERT_EQ(::chown(place().c_str(), 65534, 65534), 0);
  const int status = in_child([&] {
    if (!become_nobody()) return 1;
    const auto pruned =
        storage::prune(FileSystem::real(), place(), {.keep = {.last = 1}});
    return pruned.damaged.empty() && pruned.unreadable.size() == 1 ? 0 : 2;
  });
  EXPECT_EQ(status, 0);
  EXPECT_THAT(names_in(place()), ElementsAre("last", "step_2", "step_3"));
}

TEST_F(Catalog, AChangeOfAFileMakesItsMarkVoid) {
  const auto checkpoint = save(1);
  const auto mark = [&] {
    return storage::read_mark(checkpoint,
                              storage::verify(checkpoint, storage::Depth::quick));
  };
  wait_for_the_clock_of_files();
  storage::verify(checkpoint, storage::Depth::full);
  EXPECT_EQ(mark(), storage::Mark::read);
  const auto file = checkpoint / "rank_0.safetensors";
  const auto time = std::filesystem::last_write_time(file);
  damage(file);
  std::filesystem::last_write_time(file, time);  // as a careless copy sets it
  EXPECT_EQ(mark(), storage::Mark::none);
  error_text(Fault::io, [&] { storage::verify(checkpoint, storage::Depth::marked); });
  std::filesystem::copy(save(2), place() / "copy");
  EXPECT_EQ(
      storage::read_mark(place() / "copy",
                         storage::verify(place() / "copy", storage::Depth::quick)),
      storage::Mark::none);
}

TEST_F(Catalog, AMarkStandsForReading) {
  const auto checkpoint = save(1);
  const auto manifest = storage::verify(checkpoint, storage::Depth::quick);
  wait_for_the_clock_of_files();
  storage::verify(checkpoint, storage::Depth::full);
  // A disk that forgets bytes without telling anybody: only reading finds that.
  const auto file = checkpoint / "rank_0.safetensors";
  const auto forged = checkpoint / ".verified";
  damage(file);
  error_text(Fault::io, [&] { storage::verify(checkpoint, storage::Depth::full); });
  write_file(forged, "read\n" + storage::fingerprint(checkpoint, manifest).text);
  EXPECT_NO_THROW(storage::verify(checkpoint, storage::Depth::marked));
  error_text(Fault::io, [&] { storage::verify(checkpoint, storage::Depth::full); });
}

TEST_F(Catalog, ACopyUnderTheNameOfAnotherStepIsNotGood) {
  save(1);
  std::filesystem::copy(save(2), place() / "step_9");
  for (const auto depth : {storage::Depth::quick, storage::Depth::full}) {
    EXPECT_THAT(
        error_text(Fault::io, [&] { storage::verify(place() / "step_9/", depth); }),
        testing::HasSubstr("it holds step 2; was it copied?"));
  }
  EXPECT_EQ(storage::newest_valid(place(), storage::Depth::full).path,
            place() / "step_2");
  std::filesystem::copy(place() / "step_2", place() / "my_best");
  EXPECT_NO_THROW(storage::verify(place() / "my_best", storage::Depth::full));
}

TEST_F(Catalog, CleanUpSaysWhatItDidAndTouchesNothingElse) {
  save(1);
  save(2);
  std::filesystem::create_directories(place() / ".step_3.partial");
  write_file(place() / ".step_3.partial/rank_0.safetensors", "x");
  std::filesystem::rename(place() / "step_2", place() / ".step_2.replaced");
  std::filesystem::create_directories(place() / ".step_0.removed");
  std::filesystem::create_directories(place() / "mine");
  EXPECT_THAT(storage::clean_up(FileSystem::real(), place()),
              ElementsAre("removed what an interrupted removal of step 0 left",
                          "put step 2 back, whose replacement had been interrupted",
                          "removed what an interrupted save of step 3 left"));
  EXPECT_THAT(names_in(place()), ElementsAre("last", "mine", "step_1", "step_2"));
  expect_small(place() / "step_2", 2);
}

TEST_F(Catalog, WhatCameAfterTheStepThatARunGoesOnFromIsSetAside) {
  for (const int step : {1, 2, 3, 4}) save(step);
  EXPECT_EQ(storage::set_aside(FileSystem::real(), place(), 2),
            place() / "set_aside_1");
  EXPECT_THAT(names_in(place()),
              ElementsAre("last", "set_aside_1", "step_1", "step_2"));
  EXPECT_EQ(std::filesystem::read_symlink(place() / "last"), "step_2");
  expect_small(place() / "set_aside_1" / "step_4", 4);
  EXPECT_FALSE(storage::set_aside(FileSystem::real(), place(), 2));
  save(3);
  EXPECT_EQ(storage::set_aside(FileSystem::real(), place(), -1),
            place() / "set_aside_2");
  EXPECT_THAT(names_in(place()), ElementsAre("set_aside_1", "set_aside_2"));
}

TEST(Retention, WhatWasJustSavedStaysWhateverIsThereBesides) {
  EXPECT_THAT(
      storage::steps_to_remove({{.step = 12}, {.step = 20}}, {.last = 1, .always = 12}),
      IsEmpty());
}

TEST_F(Catalog, ACheckpointThatStandsAsideStillCounts) {
  save(2);
  std::filesystem::rename(place() / "step_2", place() / ".step_2.replaced");
  EXPECT_EQ(storage::newest_valid(place(), storage::Depth::full).path,
            place() / ".step_2.replaced");
}

}  // namespace
}  // namespace lockstep::test
