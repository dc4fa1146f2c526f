#include "lockstep/service/store.h"

#include <array>

#include "lockstep/service/access.h"
#include "lockstep/service/audit.h"
#include "lockstep/service/detail/one_line.h"
#include "tests/service/rig.h"

namespace lockstep::service {
namespace {

using ::testing::HasSubstr;

class StoreTest : public ::testing::Test {
 protected:
  std::string add(const std::string& user, int priority = 0) {
    add_user(store_, user);
    return store_.add_job({.user = user,
                           .name = "n",
                           .priority = priority,
                           .request = "{}",
                           .recipe = "train: {steps: 1}",
                           .overrides = {{"data.dir", "'/x'"}}});
  }

  files::TemporaryDirectory folder_;
  ManualClock clock_;
  Store store_{folder_.path() / "a.db", clock_};
};

TEST_F(StoreTest, ReadsBackWhatWasSubmitted) {
  const auto id = add("ada", 7);
  const auto job = store_.find_job(id);
  ASSERT_TRUE(job);
  EXPECT_EQ(job->user, "ada");
  EXPECT_EQ(job->priority, 7);
  EXPECT_EQ(job->state, JobState::queued);
  EXPECT_EQ(job->overrides.at(0).second, "'/x'");
  EXPECT_FALSE(store_.find_job("job-other"));
}

TEST_F(StoreTest, RemembersEveryChangeWithTimeAndReason) {
  const auto id = add("ada");
  clock_.advance(std::chrono::seconds(2));
  EXPECT_TRUE(store_.move(id, {JobState::queued, JobState::planning, "its turn"}));
  EXPECT_TRUE(store_.move(id, {JobState::planning, JobState::failed, "no disk"}));
  const auto history = store_.history(id);
  ASSERT_EQ(history.size(), 3U);
  EXPECT_EQ(history[1].time - history[0].time, 2000);
  EXPECT_EQ(history[2].reason, "no disk");
  EXPECT_GT(store_.find_job(id)->finished, 0);
}

TEST_F(StoreTest, TwoWhoMoveTheSameJobDoNotBothSucceed) {
  const auto id = add("ada");
  Store other(folder_.path() / "a.db", clock_);
  EXPECT_TRUE(store_.move(id, {JobState::queued, JobState::planning, ""}));
  EXPECT_FALSE(other.move(id, {JobState::queued, JobState::cancelled, ""}));
  EXPECT_EQ(store_.find_job(id)->state, JobState::planning);
}

TEST_F(StoreTest, AStateThatMayNotFollowIsRefused) {
  const auto id = add("ada");
  EXPECT_FALSE(store_.move(id, {JobState::queued, JobState::running, ""}));
  EXPECT_EQ(store_.history(id).size(), 1U);
}

TEST_F(StoreTest, ChangesOfAllJobsHaveOneOrder) {
  EXPECT_EQ(store_.last_change(), 0);
  const auto first = add("ada");
  const auto seen = store_.last_change();
  const auto second = add("eve");
  store_.move(first, {JobState::queued, JobState::planning, "its turn"});
  const auto changes = store_.changes_after(seen, 10);
  ASSERT_EQ(changes.size(), 2U);
  EXPECT_EQ(changes[0].job, second);
  EXPECT_EQ(changes[1].job, first);
  EXPECT_EQ(changes[1].state, JobState::planning);
  EXPECT_EQ(changes[1].reason, "its turn");
  EXPECT_EQ(store_.changes_after(seen, 1).size(), 1U);
  EXPECT_TRUE(store_.changes_after(store_.last_change(), 10).empty());
}

// A job that runs for long must not have all the GPUs before it counts.
TEST_F(StoreTest, UseCountsWhatRuns) {
  const auto id = add("ada");
  store_.set_resources(id, {.cores = 1, .gpus = 2});
  store_.move(id, {JobState::queued, JobState::planning});
  store_.set_attempt(id, 1, store_.now());
  clock_.advance(std::chrono::hours(3));
  auto use = store_.use().at(0);
  EXPECT_EQ(use.active_jobs, 1);
  EXPECT_DOUBLE_EQ(use.seconds, 3 * 3600);
  EXPECT_DOUBLE_EQ(use.gpu_seconds, 2 * 3 * 3600);
  store_.add_use(id, 3 * 3600, 2 * 3 * 3600);
  store_.move(id, {JobState::planning, JobState::done});
  clock_.advance(std::chrono::hours(1));
  use = store_.use().at(0);
  EXPECT_EQ(use.active_jobs, 0);
  EXPECT_DOUBLE_EQ(use.gpu_seconds, 2 * 3 * 3600);
}

// Else a user whose GPU hours are used up removes the jobs that have used them.
TEST_F(StoreTest, WhatARemovedJobHasUsedCountsForItsMonth) {
  const auto id = add("ada");
  store_.move(id, {JobState::queued, JobState::planning});
  store_.add_use(id, 3600, 7200);
  store_.move(id, {JobState::planning, JobState::done});
  store_.remove_job(id);
  ASSERT_EQ(store_.use().size(), 1U);
  EXPECT_DOUBLE_EQ(store_.use().at(0).seconds, 3600);
  EXPECT_DOUBLE_EQ(store_.use().at(0).gpu_seconds, 7200);
  EXPECT_EQ(store_.use().at(0).open_jobs, 0);
  clock_.advance(std::chrono::hours(31 * 24));
  EXPECT_TRUE(store_.use().empty());
}

TEST_F(StoreTest, AClockThatIsSetBackTakesNoUseBack) {
  const auto id = add("ada");
  store_.set_resources(id, {.cores = 1, .gpus = 1});
  store_.add_use(id, 100, 100);
  store_.move(id, {JobState::queued, JobState::planning});
  store_.set_attempt(id, 1, store_.now());
  clock_.advance(-std::chrono::hours(3));
  EXPECT_DOUBLE_EQ(store_.use().at(0).seconds, 100);
  EXPECT_DOUBLE_EQ(store_.use().at(0).gpu_seconds, 100);
}

// A thousand jobs of a user may have sent more than the machine has memory.
TEST_F(StoreTest, AListOfJobsHasNoneOfTheirTexts) {
  const auto id = add("ada");
  for (const auto& listed :
       {store_.jobs({}).at(0), store_.jobs_in(std::array{JobState::queued}).at(0)}) {
    EXPECT_EQ(listed.recipe, "");
    EXPECT_EQ(listed.request, "");
    EXPECT_EQ(listed.overrides.size(), 1U);
    EXPECT_EQ(listed.recipe_key, sha256("train: {steps: 1}"));
  }
  EXPECT_EQ(store_.find_job(id)->recipe, "train: {steps: 1}");
  EXPECT_EQ(store_.find_job(id)->request, "{}");
}

// What was written to a file that is gone would be gone with this process.
TEST_F(StoreTest, NothingIsWrittenToAFileThatWasReplaced) {
  const auto file = folder_.path() / "a.db";
  const auto id = add("ada");
  const auto beside = folder_.path() / "b.db";
  std::filesystem::rename(file, beside);
  for (const auto* content : {"", "another"}) {
    if (*content != 0) test::write_file(file, content);
    const auto text = test::error_text(Fault::io, [&] {
      store_.move(id, {JobState::queued, JobState::cancelled});
    });
    EXPECT_THAT(text, HasSubstr("removed or replaced"));
    std::filesystem::remove(file);
  }
  EXPECT_EQ(store_.find_job(id)->state, JobState::queued);
  std::filesystem::rename(beside, file);
  EXPECT_TRUE(store_.move(id, {JobState::queued, JobState::cancelled}));
}

TEST_F(StoreTest, BytesAreSummedOverAllJobsOfAUser) {
  store_.set_bytes(add("ada"), 100);
  store_.set_bytes(add("ada"), 20);
  store_.set_bytes(add("eve"), 3);
  const auto of_texts = std::string("{}train: {steps: 1}").size();
  EXPECT_EQ(store_.bytes_of("ada"), 120 + 2 * static_cast<std::int64_t>(of_texts));
  EXPECT_EQ(store_.bytes_of("nobody"), 0);
}

TEST_F(StoreTest, ATransactionIsAllOrNothing) {
  const auto id = add("ada");
  EXPECT_THROW(store_.transaction([&] {
    store_.move(id, {JobState::queued, JobState::planning, ""});
    throw Error(Fault::io, "a full disk");
  }),
               Error);
  EXPECT_EQ(store_.find_job(id)->state, JobState::queued);
  EXPECT_EQ(store_.history(id).size(), 1U);
}

TEST_F(StoreTest, TheFileIsItsOwnersOnly) {
  const auto mode = std::filesystem::status(folder_.path() / "a.db").permissions();
  EXPECT_EQ(mode & std::filesystem::perms::all,
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST_F(StoreTest, ALaterLayoutIsRefused) {
  store_.database().execute("PRAGMA user_version=99");
  const auto text =
      test::error_text(Fault::config, [&] { Store(folder_.path() / "a.db", clock_); });
  EXPECT_THAT(text, HasSubstr("version 99"));
}

TEST_F(StoreTest, ABackupIsWholeWhileOthersWrite) {
  for (int i = 0; i < 50; ++i) add("ada");
  store_.database().back_up_to(folder_.path() / "b.db");
  Store copy(folder_.path() / "b.db", clock_);
  EXPECT_EQ(copy.jobs({.limit = 1000}).size(), 50U);
}

TEST_F(StoreTest, ATokenIsKnownUntilItIsRevokedOrExpires) {
  const auto made = add_token(store_, {.user = "ada", .role = Role::viewer});
  const auto who = identify(store_, made.secret);
  ASSERT_TRUE(who);
  EXPECT_EQ(who->user, "ada");
  EXPECT_EQ(who->role, Role::viewer);
  EXPECT_FALSE(identify(store_, made.secret + "0"));
  EXPECT_FALSE(identify(store_, made.id));
  EXPECT_TRUE(revoke_token(store_, made.id));
  EXPECT_FALSE(identify(store_, made.secret));
  const auto brief = add_token(store_, {.user = "ada", .expires = store_.now() + 1000});
  EXPECT_TRUE(identify(store_, brief.secret));
  clock_.advance(std::chrono::seconds(2));
  EXPECT_FALSE(identify(store_, brief.secret));
}

TEST_F(StoreTest, TheSecretOfATokenIsNowhereOnDisk) {
  const auto made = add_token(store_, {.user = "ada"});
  store_.database().execute("PRAGMA wal_checkpoint(TRUNCATE)");
  for (const auto& name : test::names_in(folder_.path())) {
    EXPECT_THAT(test::read_file(folder_.path() / name),
                ::testing::Not(HasSubstr(made.secret.substr(4))));
  }
}

TEST_F(StoreTest, NamesOfUsersAreNoPaths) {
  for (const auto* name : {"", "..", "a/b", "a b", "-x", ".x", "a\nb", "ä"}) {
    EXPECT_TRUE(test::error_of([&] { check_user_name(name); })) << name;
  }
  EXPECT_FALSE(test::error_of([] { check_user_name("ada_1-x"); }));
}

TEST_F(StoreTest, AChangedLineOfTheAuditLogIsFound) {
  for (int i = 0; i < 5; ++i) {
    write_audit(store_, {.user = "ada", .action = "POST /v1/jobs", .status = 201});
  }
  EXPECT_FALSE(first_altered(store_));
  store_.database().execute("UPDATE audit SET user = 'eve' WHERE number = 3");
  EXPECT_EQ(first_altered(store_), 3);
}

TEST_F(StoreTest, AMissingLineOfTheAuditLogIsFound) {
  for (int i = 0; i < 5; ++i) {
    write_audit(store_, {.user = "ada", .action = "POST /v1/jobs", .status = 201});
  }
  store_.database().execute("DELETE FROM audit WHERE number = 2");
  EXPECT_EQ(first_altered(store_), 2);
}

// Each line that is left is as it was: only a hash from before tells.
TEST_F(StoreTest, LinesOfTheAuditLogThatAreCutOffAreSeenByItsLastHash) {
  EXPECT_FALSE(last_audit(store_));
  for (int i = 0; i < 5; ++i) {
    write_audit(store_, {.user = "ada", .action = "POST /v1/jobs", .status = 201});
  }
  const auto before = last_audit(store_);
  ASSERT_TRUE(before);
  EXPECT_EQ(before->number, 5);
  EXPECT_EQ(before->hash, audit(store_, 4, 1).at(0).hash);
  store_.database().execute("DELETE FROM audit WHERE number = 5");
  EXPECT_FALSE(first_altered(store_));
  EXPECT_NE(last_audit(store_)->hash, before->hash);
}

TEST(OneLine, ControlCharactersMakeNoLinesAndDoNothingToATerminal) {
  EXPECT_EQ(one_line("a\nb\x1b[2J\x7f"), "a b [2J ");
  EXPECT_EQ(one_line("größer"), "größer");
  EXPECT_TRUE(has_control_characters("a\tb"));
  EXPECT_TRUE(has_control_characters(std::string_view("\0", 1)));
  EXPECT_FALSE(has_control_characters("größer als 1"));
}

TEST(States, OnlyOverOnesStayAsTheyAre) {
  EXPECT_TRUE(is_over(JobState::done));
  EXPECT_FALSE(may_follow(JobState::done, JobState::queued));
  EXPECT_TRUE(may_follow(JobState::paused, JobState::queued));
  EXPECT_FALSE(may_follow(JobState::stopping, JobState::queued));
  EXPECT_EQ(job_state_of(name_of(JobState::interrupted)), JobState::interrupted);
}

}  // namespace
}  // namespace lockstep::service
