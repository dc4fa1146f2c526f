// Many jobs, each of which loses a rank at a moment and by a signal that chance
// chooses. The seed is fixed: a failure can be looked at again.
#include <random>

#include "lockstep/base/process.h"
#include "tests/launcher/job_rig.h"

namespace lockstep {
namespace {

using run::RunStatus;

class Soak : public test::JobRig {
 protected:
  int pick(int count) {
    return static_cast<int>(random_() % static_cast<unsigned>(count));
  }

  // In which moment of its life the rank is hit.
  std::string moment() {
    const std::vector<std::string> moments{"victim ", "0 ready", "child ", "0 done"};
    return moments[static_cast<std::size_t>(pick(4))];
  }

  int signal() {
    constexpr std::array kSignals{SIGKILL, SIGSEGV, SIGABRT, SIGTERM, SIGBUS,
                                  SIGSTOP, SIGINT,  SIGFPE,  SIGUSR2, SIGPIPE};
    return kSignals[static_cast<std::size_t>(pick(kSignals.size()))];
  }

  std::mt19937 random_{20261115};
};

TEST_F(Soak, TwoHundredRandomKillsLeaveNothing) {
  int failed = 0;
  for (int round = 0; round < 200; ++round) {
    std::filesystem::remove(notes_);
    std::filesystem::remove(run_.heartbeat());
    const auto rank = std::to_string(pick(3));
    auto job = worker_job(3, {"r0.env=MASTER_PORT", "r" + rank + ".pid=victim",
                              "r0.listen", "steps=2:1", "note=ready", "r1.child",
                              "steps=2:1", "note=done", "beat=9:exchanging", "hang"});
    // All wait for ever, so even a signal that does nothing is a hang.
    job.hang_limits->step_floor = job.hang_limits->first_step =
        std::chrono::milliseconds(200);
    job.hang_limits->startup = test::kPatience;
    const auto when = moment();
    const int number = signal();
    SCOPED_TRACE(str("round ", round, ": rank ", rank, " gets ",
                     process::signal_name(number), " at '", when, "'"));
    const auto result = run(job, [&] {
      EXPECT_TRUE(noted("victim "));
      // On a busy machine a rank may be late, and the job has ended before.
      EXPECT_TRUE(test::eventually([&] {
        return test::read_file(notes_).find(when) != std::string::npos ||
               is_gone(pid_noted("victim"));
      }));
      ::kill(pid_noted("victim"), number);
    });
    EXPECT_EQ(result.state, RunStatus::failed);
    failed += result.state == RunStatus::failed ? 1 : 0;
    const auto port = text::to_integer(found("MASTER_PORT"));
    if (port) launcher::HeldPort::take(static_cast<int>(*port));
  }
  EXPECT_EQ(failed, 200);
}

}  // namespace
}  // namespace lockstep
