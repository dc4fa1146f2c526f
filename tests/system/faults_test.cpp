// Every fault in every phase, to every rank, over every backend: the run ends or goes
// on as it should, nothing is left of it, and the same command takes it up again.
//
// LOCKSTEP_SOAK_FAULTS=200 (scripts/soak.sh faults) tries all of them and prints a
// table; a test run takes a few, evenly spread.
#include <map>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <signal.h>

#include "lockstep/storage/catalog.h"
#include "tests/system/soak.h"
#include "tests/system/training.h"

namespace lockstep {
namespace {

using run::Phase;
using run::RunStatus;

constexpr int kFaultRanks = 2;
constexpr int kLauncher = -1;

enum class Then { fails, stops, goes_on, is_gone };

struct InjectedFault {
  std::string name;
  std::vector<int> signals;
  Then then = Then::fails;
  // The exit status of a run that stops, without a checkpoint and with one.
  int without = 0;
  int with_checkpoint = 0;
};

struct FaultCell {
  InjectedFault fault;
  Phase phase = Phase::training;
  int victim = 0;  // a rank, or kLauncher
  std::string backend;

  std::string text() const {
    return fmt::format(
        "{:<14} {:<11} {:<9} {:<9}", fault.name, name_of(phase),
        victim == kLauncher ? "launcher" : fmt::format("rank {}", victim), backend);
  }
};

std::vector<FaultCell> all_faults() {
  const std::vector<InjectedFault> of_ranks{
      {"SIGKILL", {SIGKILL}, Then::fails},
      {"SIGSEGV", {SIGSEGV}, Then::fails},
      {"SIGSTOP", {SIGSTOP}, Then::fails},
      {"SIGTERM", {SIGTERM}, Then::stops, 143, 75},
      // By a SIGTERM, in the end.
      {"pause of 1 s", {SIGSTOP, SIGCONT}, Then::goes_on, 143, 75}};
  const std::vector<InjectedFault> of_launchers{
      {"SIGKILL", {SIGKILL}, Then::is_gone},
      {"SIGTERM", {SIGTERM}, Then::stops, 143, 75},
      {"SIGHUP", {SIGHUP}, Then::stops, 129, 75},
      {"SIGUSR1", {SIGUSR1}, Then::stops, 138, 75},
      {"SIGINT twice", {SIGINT, SIGINT}, Then::stops, 130, 130}};
  constexpr std::array kPhases{Phase::starting, Phase::training, Phase::evaluating,
                               Phase::saving};
  std::vector<FaultCell> cells;
  for (const auto phase : kPhases) {
    for (const auto* backend : {"shm", "gloo", "sharded", "zero3"}) {
      for (const auto& fault : of_ranks) {
        for (int rank = 0; rank < kFaultRanks; ++rank) {
          cells.push_back({fault, phase, rank, backend});
        }
      }
      if (backend != std::string("shm") && backend != std::string("gloo")) continue;
      for (const auto& fault : of_launchers) {
        cells.push_back({fault, phase, kLauncher, backend});
      }
    }
  }
  return cells;
}

class FaultyRun {
 public:
  explicit FaultyRun(const FaultCell& cell) : cell_(cell) {}

  // The row of the table: what came of it; failures are the test's.
  std::string go() {
    job_.emplace(command(test::kEndless));
    if (!reach_phase()) return "the phase was not reached\n" + job_->text();
    const auto begin = std::chrono::steady_clock::now();
    inject();
    const auto end = cell_.fault.then == Then::goes_on
                         ? go_on_and_stop()
                         : job_->wait_for(test::kPatience);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (!end) {
      ADD_FAILURE() << "it hangs\n" << job_->text();
      return "hangs";
    }
    EXPECT_TRUE(job_->is_gone()) << job_->all().size() << " processes are left";
    check_end(end->shell_status());
    const auto left = leftovers();
    // A process that was killed could take nothing away: that the next start does.
    if (cell_.fault.then != Then::is_gone) {
      EXPECT_EQ(left, std::vector<std::string>()) << job_->text();
    }
    rerun();
    return fmt::format("{:>4} {:>6.2f} s  {}", end->shell_status(), took.count(),
                       left.empty() ? "nothing" : text::join(left, " "));
  }

 private:
  std::vector<std::string> command(const std::string& length) const {
    std::vector<std::string> zero;
    if (cell_.backend == "zero3") {
      zero = {"parallel.strategy=zero", "parallel.zero_stage=3"};
    }
    const std::vector<std::string> all{
        "model.name=mlp",
        "model.hidden=256",
        "checkpoint.every=2",
        "eval.every=3",
        "data.eval_samples=3000",
        "batch.eval=50",
        "comm.timeout=8s",
        length,
        cell_.backend == "shm" ? "comm.backend=shm" : "comm.backend=gloo",
        cell_.backend == "sharded" ? "parallel.shard_update=on"
                                   : "parallel.shard_update=auto",
        "--grace-period",
        "8s"};
    return test::train_command(run_, kFaultRanks, test::joined(all, zero));
  }

  std::int64_t newest() const {
    const auto steps = storage::list_steps(run_ / "checkpoints");
    return steps.empty() ? 0 : steps.back().step;
  }

  bool is_saving() const {
    std::error_code none;
    for (std::filesystem::directory_iterator at(run_ / "checkpoints", none), end;
         !none && at != end; at.increment(none)) {
      if (at->path().filename().string()[0] == '.') return true;
    }
    return false;
  }

  bool is_in_phase() const {
    const int rank = std::max(cell_.victim, 0);
    const auto beat = test::beat_of(run_, rank);
    if (!beat) return false;
    if (cell_.phase == Phase::starting) return beat->phase == Phase::starting;
    if (newest() == 0) return false;
    return cell_.phase == Phase::saving ? is_saving() : beat->phase == cell_.phase;
  }

  bool reach_phase() {
    const bool reached = test::eventually([&] { return is_in_phase(); });
    EXPECT_TRUE(reached) << job_->text();
    return reached;
  }

  void inject() {
    const auto pid = cell_.victim == kLauncher ? job_->pid()
                                               : test::beat_of(run_, cell_.victim)->pid;
    bool first = true;
    for (const int signal : cell_.fault.signals) {
      // The length of the pause; and a second Ctrl-C is no echo of the first.
      if (!first) std::this_thread::sleep_for(std::chrono::seconds(1));
      first = false;
      ::kill(pid, signal);
    }
  }

  std::optional<process::End> go_on_and_stop() {
    const auto before = test::beat_of(run_, 0);
    EXPECT_TRUE(test::eventually([&] {
      const auto now = test::beat_of(run_, 0);
      return now && before && now->step > before->step + 3;
    })) << "it does not go on\n"
        << job_->text();
    ::kill(job_->pid(), SIGTERM);
    return job_->wait_for(test::kPatience);
  }

  void check_end(int status) const {
    const auto state = test::record_of(run_).state;
    switch (cell_.fault.then) {
      case Then::fails:
        EXPECT_EQ(state, RunStatus::failed) << job_->text();
        EXPECT_NE(status, 0);
        EXPECT_THAT(job_->text(),
                    testing::HasSubstr(fmt::format("rank {}", cell_.victim)));
        break;
      case Then::is_gone:
        EXPECT_EQ(status, 128 + SIGKILL);
        break;
      case Then::stops:
      case Then::goes_on:
        check_stop(state, status);
        break;
    }
  }

  // A rank that is hit before it listens dies of its signal, and the run has failed.
  void check_stop(RunStatus state, int status) const {
    if (cell_.phase == Phase::starting && cell_.victim != kLauncher) {
      EXPECT_TRUE(run::is_final(state));
      return;
    }
    EXPECT_EQ(state, RunStatus::stopped) << job_->text();
    const auto& fault = cell_.fault;
    EXPECT_EQ(status, newest() > 0 ? fault.with_checkpoint : fault.without)
        << job_->text();
    // Only a person who presses twice is not willing to wait for a save.
    EXPECT_TRUE(!is_saving() || fault.signals[0] == SIGINT);
  }

  // What no reader of a run expects to find. A save that was cut leaves its part of a
  // checkpoint, which the next start takes away.
  std::vector<std::string> leftovers() const {
    std::vector<std::string> left;
    for (const auto& name : test::names_in(run_)) {
      if (name[0] == '.' || name == "lock") left.push_back(name);
    }
    return left;
  }

  void rerun() {
    const auto from = newest();
    const auto again = test::run(command(str("train.steps=", from + 4)));
    EXPECT_EQ(again.end.shell_status(), 0) << again.err;
    EXPECT_EQ(test::record_of(run_).state, RunStatus::done);
    EXPECT_EQ(test::beat_of(run_, 1)->step, from + 4);
    EXPECT_EQ(leftovers(), std::vector<std::string>());
    EXPECT_FALSE(is_saving());
    if (from == 0) return;
    EXPECT_THAT(again.err, testing::HasSubstr("from step " + std::to_string(from)));
  }

  const FaultCell cell_;
  files::TemporaryDirectory folder_;
  const test::Path run_ = folder_.path() / "run";
  std::optional<test::Job> job_;
};

TEST(Faults, EveryFaultEndsAsItShouldAndTheSameCommandGoesOn) {
  const auto cells = all_faults();
  const auto wanted =
      std::min<std::size_t>(cells.size(), test::soak_number("LOCKSTEP_SOAK_FAULTS", 8));
  fmt::print("{:<14} {:<11} {:<9} {:<9} {:>4} {:>8}  left\n", "fault", "phase", "whom",
             "backend", "exit", "after");
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < wanted; ++i) {
    // Spread over the list by a number that has no factor in common with its length.
    const auto& cell = cells[i * 37 % cells.size()];
    SCOPED_TRACE(cell.text());
    const auto failures = ::testing::UnitTest::GetInstance()
                              ->current_test_info()
                              ->result()
                              ->total_part_count();
    const auto row = FaultyRun(cell).go();
    const bool fine = ::testing::UnitTest::GetInstance()
                          ->current_test_info()
                          ->result()
                          ->total_part_count() == failures;
    wrong += fine ? 0 : 1;
    fmt::print("{} {}{}\n", cell.text(), row, fine ? "" : "  WRONG");
    std::fflush(stdout);
  }
  fmt::print("{} cells, {} wrong\n", wanted, wrong);
}

}  // namespace
}  // namespace lockstep
