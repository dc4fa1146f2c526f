// Ranks killed at random: whichever, whenever, however. Nothing may be left of the job.
//
// LOCKSTEP_SOAK_KILLS=200 for a long run, LOCKSTEP_SOAK_SEED to repeat one.
#include "tests/system/soak.h"

#include <random>

#include <signal.h>

#include "lockstep/base/process.h"
#include "lockstep/launcher/signals.h"
#include "tests/system/ranks.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

constexpr int kSoakRanks = 4;

struct Kill {
  int victim;  // a rank, or kSoakRanks: the launcher
  int signal;
  std::chrono::milliseconds after;  // it was there

  std::string describe() const {
    return str(process::signal_name(signal), " to ",
               victim == kSoakRanks ? "the launcher" : str("rank ", victim), " after ",
               after.count(), " ms");
  }
};

Kill draw(std::mt19937& random) {
  const auto below = [&](int limit) { return static_cast<int>(random() % limit); };
  // Half of them hit the start: loading libraries, meeting, the first collective.
  const std::chrono::milliseconds after(below(2) == 0 ? below(800) : below(3'000));
  if (below(8) == 0) return {kSoakRanks, SIGKILL, after};
  constexpr std::array kSignals{SIGKILL, SIGTERM, SIGSEGV, SIGABRT, SIGBUS, SIGSTOP};
  return {below(kSoakRanks), kSignals[random() % kSignals.size()], after};
}

// One job, one kill.
void expect_clean_death(const Kill& kill) {
  const int port = test::free_port();
  test::Job job(
      test::launch_worker(
          {"--nproc-per-node", std::to_string(kSoakRanks), "--master-port",
           std::to_string(port), "--grace-period", "2"},
          {"--selftest", "--seconds", "600"}),
      {{"LOCKSTEP_COMM_TIMEOUT", "5s"}, {"LOCKSTEP_COMM_JOIN_TIMEOUT", "15s"}});
  pid_t victim = 0;
  ASSERT_TRUE(test::eventually([&] {
    victim =
        kill.victim == kSoakRanks ? job.pid() : job.with(str("RANK=", kill.victim));
    return victim != 0;
  })) << job.text();
  std::this_thread::sleep_for(kill.after);
  ASSERT_EQ(::kill(victim, kill.signal), 0) << job.text();
  const auto end = job.wait_for(test::kPatience);
  ASSERT_TRUE(end.has_value()) << job.text();
  EXPECT_NE(end->shell_status(), 0) << job.text();
  EXPECT_TRUE(job.is_gone()) << job.all().size() << " processes are left\n"
                             << job.text();
  EXPECT_TRUE(test::eventually([&] { return test::is_free(port); })) << port;
  // A stopped rank is named by nobody but those who waited for it.
  if (kill.victim < kSoakRanks && kill.signal != SIGSTOP) {
    EXPECT_THAT(job.text(),
                HasSubstr(str("rank ", kill.victim, " (pid ", victim, " ")));
  }
}

TEST(Soak, RandomKillsLeaveNothingBehind) {
  const auto kills = test::soak_number("LOCKSTEP_SOAK_KILLS", 12);
  const auto seed = test::soak_number("LOCKSTEP_SOAK_SEED", std::random_device()());
  std::printf("seed %u, %u kills\n", seed, kills);
  std::mt19937 random(seed);
  for (std::uint32_t i = 0; i < kills && !HasFatalFailure(); ++i) {
    const auto kill = draw(random);
    SCOPED_TRACE(str("seed ", seed, ", kill ", i, ": ", kill.describe()));
    expect_clean_death(kill);
  }
}

}  // namespace
}  // namespace lockstep
