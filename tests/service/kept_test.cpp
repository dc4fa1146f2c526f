// What is kept in memory is as true as what it was read from, and never too much.
#include <fstream>

#include "lockstep/monitor/metrics.h"
#include "lockstep/service/recent.h"
#include "lockstep/service/run_cache.h"
#include "tests/service/rig.h"

namespace lockstep::service {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Recent, WhatWasNotAskedForLongestGoesFirst) {
  Recent<std::string, int> recent(3);
  for (const auto* key : {"a", "b", "c"}) recent.put(key, 1);
  EXPECT_NE(recent.find("a"), nullptr);
  recent.put("d", 1);
  EXPECT_EQ(recent.find("b"), nullptr);
  for (const auto* key : {"a", "c", "d"}) EXPECT_NE(recent.find(key), nullptr) << key;
}

TEST(Recent, ItsWeightIsNeverAboveTheMost) {
  Recent<int, int> recent(100);
  for (int i = 0; i < 1000; ++i) {
    recent.put(i % 37, i, static_cast<std::size_t>(i % 60));
    ASSERT_LE(recent.weight(), 100U);
  }
  recent.put(1, 1, 101);
  EXPECT_EQ(recent.find(1), nullptr) << "too heavy by itself, and the old one is gone";
  recent.put(2, 7, 100);
  EXPECT_EQ(recent.size(), 1U);
  recent.put(2, 8, 1);
  EXPECT_EQ(*recent.find(2), 8);
  EXPECT_EQ(recent.weight(), 1U);
  recent.erase(2);
  EXPECT_EQ(recent.weight(), 0U);
}

class RunCacheTest : public ::testing::Test {
 protected:
  JobFolder add_run(const std::string& name) {
    const JobFolder folder(folder_.path() / name);
    run::NewRun wanted;
    wanted.name = "run";
    wanted.record = run::record_of_this_process();
    wanted.record.recipe = "/home/ada/recipe.yaml";
    run::RunDirectory::create(folder.path(), wanted);
    add_step(folder, 1);
    return folder;
  }

  static void add_step(const JobFolder& folder, std::int64_t step) {
    monitor::MetricsWriter(folder.run() / "metrics.jsonl")
        .write({.step = step, .split = monitor::Split::train, .loss = 1});
  }

  files::TemporaryDirectory folder_;
  ManualClock clock_;
};

TEST_F(RunCacheTest, AFileIsReadAgainWhenItHasGrownAndOnlyThen) {
  RunCache cache({}, clock_);
  const auto folder = add_run("a");
  const auto first = cache.metrics(folder);
  EXPECT_EQ(first->size(), 1U);
  EXPECT_EQ(cache.metrics(folder), first) << "the very same";
  add_step(folder, 2);
  EXPECT_EQ(cache.metrics(folder)->size(), 2U);
  EXPECT_EQ(first->size(), 1U) << "whoever still has the old one keeps it";
}

TEST_F(RunCacheTest, AViewIsAtMostAQuarterOfASecondOldAndTellsNothingOfTheMachine) {
  RunCache cache({}, clock_);
  const auto folder = add_run("a");
  const auto before = cache.view(folder);
  for (const auto* word : {"/home/ada", "\"pid\"", "\"host\"", "\"path\""}) {
    EXPECT_THAT(before, Not(HasSubstr(word)));
  }
  EXPECT_THAT(before, HasSubstr("\"step\":1"));
  add_step(folder, 7);
  EXPECT_THAT(cache.view(folder), HasSubstr("\"step\":1"));
  clock_.advance(std::chrono::milliseconds(250));
  EXPECT_THAT(cache.view(folder), HasSubstr("\"step\":7"));
  // Its state is seen at once.
  const auto directory = run::RunDirectory::open(folder.run());
  auto record = directory.read_record();
  record.state = run::RunStatus::failed;
  files::write_atomically(directory.record_file(), run::to_json(record));
  EXPECT_THAT(cache.view(folder), HasSubstr("\"failed\""));
}

TEST_F(RunCacheTest, WhatIsKeptHasABoundAndARunThatIsRemovedIsForgotten) {
  RunCache cache(
      {.view_bytes = 8 << 10, .metrics_bytes = 8 << 10, .largest_file = 2 << 10},
      clock_);
  std::vector<JobFolder> folders;
  for (int i = 0; i < 30; ++i) {
    folders.push_back(add_run(std::to_string(i)));
    EXPECT_NE(cache.view(folders.back()), "");
    cache.metrics(folders.back());
  }
  EXPECT_GT(cache.kept_views(), 1U);
  EXPECT_LT(cache.kept_views(), 17U) << "8 KiB, and an entry counts as half a KiB";
  EXPECT_GT(cache.kept_metrics(), 1U);
  EXPECT_LT(cache.kept_metrics(), 17U);
  const auto views = cache.kept_views();
  const auto metrics = cache.kept_metrics();
  std::filesystem::remove_all(folders.back().path());
  cache.forget(folders.back());
  EXPECT_EQ(cache.kept_views(), views - 1);
  EXPECT_EQ(cache.kept_metrics(), metrics - 1);
  // Whoever still asks for it does not bring it back.
  EXPECT_EQ(cache.view(folders.back()), "");
  EXPECT_TRUE(cache.metrics(folders.back())->empty());
  EXPECT_EQ(cache.kept_views(), views - 1);
  EXPECT_EQ(cache.kept_metrics(), metrics - 1);
}

// It has holes: whoever writes it may claim more than there is memory.
TEST_F(RunCacheTest, AFileThatClaimsToBeHugeIsNotRead) {
  const JobFolder huge(folder_.path() / "huge");
  std::filesystem::create_directories(huge.run());
  const auto file = huge.run() / "metrics.jsonl";
  test::write_file(file, "{}\n");
  std::filesystem::resize_file(file, std::uintmax_t{1} << 40);
  RunCache cache;
  EXPECT_THROW(cache.metrics(huge), Refusal);
}

TEST_F(RunCacheTest, AFileThatIsTooLargeIsReadEachTime) {
  RunCache cache({.largest_file = 200}, clock_);
  const auto folder = add_run("a");
  for (int step = 2; step < 20; ++step) add_step(folder, step);
  EXPECT_EQ(cache.metrics(folder)->size(), 19U);
  EXPECT_EQ(cache.kept_metrics(), 0U);
}

// Two connections, as of a server and of a command on the same machine.
class KeptRowsTest : public ::testing::Test {
 protected:
  std::string add_job() {
    add_user(store_, "ada");
    return store_.add_job({.user = "ada", .request = "{}", .recipe = "{}"});
  }

  files::TemporaryDirectory folder_;
  ManualClock clock_;
  Store store_{folder_.path() / "a.db", clock_};
  Store other_{folder_.path() / "a.db", clock_};
};

TEST_F(KeptRowsTest, AJobIsReadOnceAndAgainWhenAnybodyHasChangedIt) {
  const auto id = add_job();
  const auto first = store_.job_now(id);
  ASSERT_TRUE(first);
  EXPECT_EQ(store_.job_now(id), first) << "the very same";
  store_.move(id, {JobState::queued, JobState::planning, "its turn"});
  EXPECT_EQ(store_.job_now(id)->job.state, JobState::planning);
  EXPECT_EQ(store_.job_now(id)->history.back().reason, "its turn");
  other_.move(id, {JobState::planning, JobState::running, "by another process"});
  EXPECT_EQ(store_.job_now(id)->job.state, JobState::running);
  EXPECT_EQ(store_.job_now(id)->history.back().reason, "by another process");
  EXPECT_EQ(first->job.state, JobState::queued);
  other_.remove_job(id);
  EXPECT_EQ(store_.job_now(id), nullptr);
}

TEST_F(KeptRowsTest, WhatATransactionTakesBackIsNotKept) {
  const auto id = add_job();
  EXPECT_EQ(store_.job_now(id)->job.state, JobState::queued);
  EXPECT_THROW(store_.transaction([&] {
    store_.move(id, {JobState::queued, JobState::planning});
    EXPECT_EQ(store_.job_now(id)->job.state, JobState::planning);
    throw Refusal(Refused::conflict, "after all not");
  }),
               Refusal);
  EXPECT_EQ(store_.job_now(id)->job.state, JobState::queued);
}

TEST_F(KeptRowsTest, ATokenThatIsRevokedElsewhereIsRefusedAtOnce) {
  Identities identities(store_);
  const auto made = add_token(store_, {.user = "ada", .role = Role::viewer});
  for (int i = 0; i < 3; ++i) {
    const auto who = identities.identify(made.secret);
    ASSERT_TRUE(who);
    EXPECT_EQ(who->user, "ada");
    EXPECT_EQ(who->role, Role::viewer);
    EXPECT_EQ(who->token, made.id);
  }
  auto wrong = made.secret;
  wrong.back() = wrong.back() == '0' ? '1' : '0';
  EXPECT_FALSE(identities.identify(wrong));
  EXPECT_TRUE(revoke_token(other_, made.id));
  EXPECT_FALSE(identities.identify(made.secret));
}

TEST_F(KeptRowsTest, ATokenThatIsKeptExpiresAllTheSame) {
  Identities identities(store_);
  const auto made = add_token(store_, {.user = "ada", .expires = store_.now() + 5'000});
  EXPECT_TRUE(identities.identify(made.secret));
  clock_.advance(std::chrono::milliseconds(4'999));
  EXPECT_TRUE(identities.identify(made.secret));
  clock_.advance(std::chrono::milliseconds(1));
  EXPECT_FALSE(identities.identify(made.secret));
}

}  // namespace
}  // namespace lockstep::service
