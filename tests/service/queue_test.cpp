#include <csignal>

#include <unistd.h>

#include "lockstep/base/process.h"
#include "lockstep/service/forecast.h"
#include "lockstep/service/schedule.h"
#include "tests/service/rig.h"

namespace lockstep::service {
namespace {

using ::testing::HasSubstr;

Pool pool_with(int gpus, int cores) {
  std::vector<int> numbers;
  for (int i = 0; i < cores; ++i) numbers.push_back(i);
  return pool_of({.machine = test::machine_with(gpus), .cores = numbers});
}

class QueueTest : public ::testing::Test {
 protected:
  QueueTest() {
    view_.pool = pool_with(2, 4);
    view_.now = 1000;
    view_.state_of = [](const std::string&) { return JobState::running; };
  }

  Job& add(const std::string& id, const std::string& user, const Resources& resources,
           int priority = 0) {
    Job job;
    job.id = id;
    job.user = user;
    job.number = static_cast<std::int64_t>(view_.queued.size());
    job.resources = resources;
    job.priority = priority;
    view_.queued.push_back(job);
    return view_.queued.back();
  }

  std::vector<Turn> run() { return schedule(view_, quota_); }

  QueueView view_;
  config::QuotaConfig quota_;
};

TEST_F(QueueTest, HigherPriorityGoesFirst) {
  add("late", "a", {.cores = 4});
  add("urgent", "a", {.cores = 4}, 5);
  const auto turns = run();
  EXPECT_EQ(turns[0].job, "urgent");
  EXPECT_EQ(turns[0].leases.size(), 4U);
  EXPECT_TRUE(turns[1].leases.empty());
}

TEST_F(QueueTest, UsersTakeTurns) {
  add("a1", "a", {.cores = 1});
  add("a2", "a", {.cores = 1});
  add("b1", "b", {.cores = 1});
  const auto turns = run();
  EXPECT_EQ(turns[0].job, "a1");
  EXPECT_EQ(turns[1].job, "b1");
}

TEST_F(QueueTest, WhoHasUsedLessGoesFirst) {
  view_.use = {{.user = "a", .seconds = 1000}, {.user = "b", .seconds = 10}};
  add("a1", "a", {.cores = 1});
  add("b1", "b", {.cores = 1});
  EXPECT_EQ(run()[0].job, "b1");
}

TEST_F(QueueTest, ALargeJobIsNotStarvedBySmallOnes) {
  view_.leases = {{.job = "x", .unit = 0}};
  add("large", "a", {.cores = 4});
  add("small", "b", {.cores = 1});
  const auto turns = run();
  EXPECT_TRUE(turns[0].leases.empty());
  EXPECT_TRUE(turns[1].leases.empty());
  EXPECT_THAT(turns[1].reason, HasSubstr("waits behind"));
}

// The id of a job is for its user.
TEST_F(QueueTest, WhoWaitsBehindAnotherUsersJobIsNotToldWhichOne) {
  view_.leases = {{.job = "x", .unit = 0}};
  add("large", "a", {.cores = 4});
  add("mine", "a", {.cores = 1});
  add("other", "b", {.cores = 1});
  for (const auto& turn : run()) {
    if (turn.job == "mine") {
      EXPECT_EQ(turn.reason, "waits behind large");
    } else if (turn.job == "other") {
      EXPECT_EQ(turn.reason, "waits behind a job of another user");
    }
  }
}

TEST_F(QueueTest, AJobWaitsForThoseItNeedsAndFailsWithThem) {
  add("next", "a", {}).needs = {"first"};
  EXPECT_THAT(run()[0].reason, HasSubstr("waits for first"));
  view_.state_of = [](const std::string&) { return JobState::failed; };
  EXPECT_TRUE(run()[0].hopeless);
  view_.state_of = [](const std::string&) { return JobState::done; };
  EXPECT_FALSE(run()[0].leases.empty());
}

TEST_F(QueueTest, ARetryWaitsItsTime) {
  add("again", "a", {}).not_before = 5000;
  EXPECT_THAT(run()[0].reason, HasSubstr("4 s"));
}

TEST_F(QueueTest, QuotasHoldJobsUp) {
  quota_.running_per_user = 1;
  add("a1", "a", {});
  add("a2", "a", {});
  const auto turns = run();
  EXPECT_FALSE(turns[0].leases.empty());
  EXPECT_THAT(turns[1].reason, HasSubstr("quota.running_per_user"));
  quota_ = {.gpu_hours_per_user = 2};
  view_.use = {{.user = "a", .gpu_seconds = 7300}};
  view_.queued.clear();
  add("g", "a", {.cores = 1, .gpus = 1});
  EXPECT_THAT(run()[0].reason, HasSubstr("gpu_hours"));
}

TEST_F(QueueTest, APlanTakesACoreAndNoGpu) {
  quota_ = {.gpu_hours_per_user = 1};
  view_.use = {{.user = "a", .gpu_seconds = 7300}};
  add("p", "a", {.cores = 3, .gpus = 2}).kind = JobKind::plan;
  const auto turns = run();
  ASSERT_EQ(turns[0].leases.size(), 1U);
  EXPECT_FALSE(turns[0].leases[0].is_gpu);
}

TEST_F(QueueTest, ALongQueueKeepsItsOrder) {
  for (int i = 0; i < 10'000; ++i) {
    add(std::to_string(i), "u" + std::to_string(i % 3), {.cores = 4}, i % 2);
  }
  const auto turns = run();
  ASSERT_EQ(turns.size(), 10'000U);
  EXPECT_EQ(turns[0].job, "1");
  EXPECT_FALSE(turns[0].leases.empty());
  for (std::size_t i = 0; i < turns.size(); ++i) {
    EXPECT_EQ(view_.queued[turns[i].index].priority, i < 5'000 ? 1 : 0);
    EXPECT_EQ(view_.queued[turns[i].index].id, turns[i].job);
  }
}

TEST(Slots, AGpuIsExclusiveUnlessAShareIsAskedFor) {
  const auto pool = pool_with(1, 8);
  const std::vector<Lease> taken{{.job = "x", .is_gpu = true, .unit = 0, .share = 0.5}};
  EXPECT_FALSE(allocate(pool, taken, {.cores = 1, .gpus = 1}));
  EXPECT_TRUE(allocate(pool, taken, {.cores = 1, .gpus = 1, .memory_fraction = 0.5}));
  EXPECT_FALSE(allocate(pool, taken, {.cores = 1, .gpus = 1, .memory_fraction = 0.6}));
}

TEST(Slots, GpusThatAreLinkedToEachOtherGoTogether) {
  auto machine = test::machine_with(4);
  for (int a = 0; a < 4; ++a) {
    for (int b = a + 1; b < 4; ++b) {
      const bool are_near = a % 2 == b % 2;  // 0 and 2, 1 and 3
      machine.gpu_pairs.push_back(
          {.first = a, .second = b, .nvlinks = are_near ? 4 : 0, .path = "system"});
    }
  }
  const auto pool = pool_of({.machine = machine, .cores = {0, 1, 2, 3}});
  const auto units = [&](std::span<const Lease> leases) {
    std::vector<int> gpus;
    for (const auto& lease : allocate(pool, leases, {.cores = 1, .gpus = 2}).leases) {
      if (lease.is_gpu) gpus.push_back(lease.unit);
    }
    return gpus;
  };
  EXPECT_THAT(units({}), ::testing::UnorderedElementsAre(0, 2));
  const std::vector<Lease> taken{{.job = "x", .is_gpu = true, .unit = 0, .share = 1}};
  EXPECT_THAT(units(taken), ::testing::UnorderedElementsAre(1, 3));
}

TEST(Slots, CertainGpusAndLeastMemoryAreKept) {
  const auto pool = pool_with(3, 8);
  const auto chosen = allocate(pool, {}, {.cores = 1, .gpus = 1, .gpu_ids = {2}});
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen.leases[0].unit, 2);
  EXPECT_THAT(
      never_fits(pool,
                 {.cores = 1, .gpus = 1, .min_memory_bytes = std::int64_t{80} << 30}),
      HasSubstr("gpus=1"));
  EXPECT_THAT(never_fits(pool, {.cores = 99}), HasSubstr("cores=99"));
}

TEST(Slots, AnUnhealthyGpuGetsNoJobAndSaysWhy) {
  auto machine = test::machine_with(4);
  machine.gpus[0].status.temperature_celsius = 99;
  machine.gpus[1].status.ecc_uncorrected = 2;
  machine.gpus[2].processes.push_back({.pid = 4711, .name = "game"});
  machine.gpus[3].xid_errors.push_back({79, "79, GPU has fallen off the bus."});
  const auto pool = pool_of({.machine = machine, .cores = {0}});
  ASSERT_EQ(pool.problems.size(), 4U);
  EXPECT_THAT(pool.problems[3].reason, HasSubstr("Xid 79, GPU has fallen off the bus"));
  EXPECT_THAT(pool.problems[0].reason, HasSubstr("99 C"));
  EXPECT_THAT(pool.problems[1].reason, HasSubstr("memory errors"));
  EXPECT_THAT(pool.problems[2].reason, HasSubstr("4711"));
  EXPECT_THAT(allocate(pool, {}, {.cores = 1, .gpus = 1}).reason, HasSubstr("GPU"));
  // A GPU of one of our own jobs has processes, too.
  const std::vector<Lease> ours{{.job = "x", .is_gpu = true, .unit = 2}};
  EXPECT_EQ(pool_of({.machine = machine, .leases = ours, .cores = {0}}).problems.size(),
            3U);
}

// A GPU that ours share with each other, and with somebody who did not ask.
TEST(Slots, AStrangerBesideOurJobsIsRespected) {
  auto child = process::Child::start({.arguments = {"/bin/sleep", "1000"}});
  auto machine = test::machine_with(1);
  machine.gpus[0].processes = {{.pid = child.pid()}, {.pid = ::getpid()}};
  const std::vector<Lease> ours{{.job = "x", .is_gpu = true, .unit = 0, .share = 0.5}};
  const auto problems = [&](std::vector<int> supervisors) {
    return pool_of({.machine = machine,
                    .leases = ours,
                    .cores = {0},
                    .supervisors = std::move(supervisors)})
        .problems.size();
  };
  // This process has started the other one.
  EXPECT_EQ(problems({::getpid()}), 0U);
  EXPECT_EQ(problems({child.pid()}), 1U);
  // What can not be seen, as in another container, is taken for ours.
  constexpr int kNobody = 0x7fffff00;
  machine.gpus[0].processes = {{.pid = kNobody}};
  EXPECT_EQ(problems({::getpid()}), 0U);
  child.signal(SIGKILL);
  child.wait();
}

TEST(Forecast, JobsStartWhenThoseBeforeThemEnd) {
  const auto starts = forecast({.cores = 2}, {{.cores = 2, .seconds = 10}},
                               {{.cores = 1, .seconds = 5},
                                {.cores = 2, .seconds = 7},
                                {.cores = 1, .seconds = 1}});
  EXPECT_EQ(starts, (std::vector<std::optional<double>>{10.0, 15.0, 22.0}));
}

TEST(Forecast, WhatHangsOnAnUnknownTimeIsNotTold) {
  const auto starts = forecast({.cores = 2, .gpus = 1}, {{.cores = 2}},
                               {{.cores = 1, .seconds = 5}, {.cores = 1}});
  EXPECT_EQ(starts, (std::vector<std::optional<double>>{std::nullopt, std::nullopt}));
}

}  // namespace
}  // namespace lockstep::service
