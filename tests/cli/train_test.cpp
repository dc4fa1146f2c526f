// `lockstep train` as a program, with shell scripts in the worker's place.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/text.h"
#include "lockstep/run/run_directory.h"
#include "tests/cli/rig.h"

namespace lockstep {
namespace {

using run::RunDirectory;
using run::RunStatus;
using test::Rig;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(Train, MakesTheRunAndRunsTheWorkerInIt) {
  const Rig rig("echo \"result of $1 $2 ($LOCKSTEP_RESULT)\"; echo progress >&2\n");
  const auto output = rig.run({"train", "recipe.yaml", "optim.lr=0.5"});
  EXPECT_EQ(output.end.exit_status, 0) << output.err;
  EXPECT_EQ(output.out, "result of --run-dir runs/0001 ()\n");
  EXPECT_THAT(output.err, HasSubstr("plan parallel.device = "));
  EXPECT_THAT(output.err, HasSubstr("run  runs/0001\n"));
  EXPECT_THAT(output.err, HasSubstr("progress\n"));

  const auto run = RunDirectory::open(rig.path("runs/0001"));
  const auto record = run.read_record();
  EXPECT_EQ(record.state, RunStatus::done);
  EXPECT_EQ(record.recipe, "recipe.yaml");
  EXPECT_EQ(record.command, rig.program().string() + " train recipe.yaml optim.lr=0.5");
  EXPECT_THAT(test::read_file(run.config()), HasSubstr("lr: 0.5"));
  EXPECT_THAT(test::read_file(run.config()), Not(HasSubstr(": auto\n")));
  EXPECT_THAT(test::read_file(run.plan()), HasSubstr("parallel.device"));
}

TEST(Train, TheConfigOfARunIsARecipe) {
  const Rig rig;
  EXPECT_EQ(rig.run({"train", "recipe.yaml", "optim.lr=0.3"}).end.exit_status, 0);
  const auto again = rig.run({"train", "runs/0001/config.yaml", "--no-auto"});
  EXPECT_EQ(again.end.exit_status, 0) << again.err;
  EXPECT_THAT(test::read_file(rig.path("runs/0002/config.yaml")), HasSubstr("lr: 0.3"));
}

// The launchers that --prepare names know nothing of the plan.
TEST(Train, APreparedRunCarriesTheVariablesOfItsPlan) {
  const Rig rig("echo \"threads $OMP_NUM_THREADS\"\n");
  auto command =
      rig.command({"train", "recipe.yaml", "--prepare", "parallel.threads=3"});
  command.arguments.insert(command.arguments.begin(), {"env", "-u", "OMP_NUM_THREADS"});
  const auto output = process::run(command, test::kPatience);
  EXPECT_EQ(output.end.exit_status, 0) << output.err;
  int commands = 0;
  std::string launch;
  for (const auto& line : text::split(output.err, '\n')) {
    if (line.find("lockstep_worker --run-dir") == std::string::npos) continue;
    commands += 1;
    EXPECT_THAT(line, HasSubstr(" env OMP_NUM_THREADS=3 "));
    if (line.find("lockstep launch") != std::string::npos) launch = line;
  }
  EXPECT_EQ(commands, 4);
  // And as a person would type it.
  const auto started = process::run(
      {.arguments = {"sh", "-c", launch},
       .environment = {{"PATH", rig.path("bin").string() + ":/usr/bin:/bin"}},
       .directory = rig.path("")},
      test::kPatience);
  EXPECT_THAT(started.out, HasSubstr("threads 3")) << started.err;
}

TEST(Train, JsonIsAskedOfTheWorker) {
  const Rig rig("echo \"$LOCKSTEP_RESULT\"\n");
  EXPECT_EQ(rig.run({"train", "recipe.yaml", "--json", "-q"}).out, "json\n");
}

TEST(Train, TheGracePeriodHasALimit) {
  const Rig rig;
  EXPECT_EQ(rig.run({"train", "recipe.yaml", "--grace-period", "2d"}).err,
            "lockstep: error: --grace-period: '2d' is more than 24h; write 24h or "
            "less\n");
  EXPECT_EQ(rig.run({"train", "recipe.yaml", "--grace-period", "24h"}).end.exit_status,
            0);
}

TEST(Train, TheWorkerIsToldToLeaveColoursOut) {
  const Rig rig("echo \"no colour: '$NO_COLOR'\"\n");
  auto command = rig.command({"train", "recipe.yaml", "-q"});
  command.environment = {{"FORCE_COLOR", "1"}};
  EXPECT_EQ(process::run(command, test::kPatience).out, "no colour: ''\n");
  command.arguments.emplace_back("--no-color");
  EXPECT_EQ(process::run(command, test::kPatience).out, "no colour: '1'\n");
}

TEST(Train, TheRecipeMayComeFromStandardInput) {
  const Rig rig;
  const auto output = test::run(
      {"/bin/sh", "-c",
       "cd '" + rig.path(".").string() +
           "' && { echo 'optim:'; echo '  lr: 0.25'; } | bin/lockstep train - -q"});
  EXPECT_EQ(output.end.exit_status, 0) << output.err;
  EXPECT_THAT(test::read_file(rig.path("runs/0001/config.yaml")),
              HasSubstr("# recipe standard input:2:7\n"));
  const auto check =
      test::run({"bash", "-c",
                 "'" + rig.program().string() + "' config check <(echo 'optim: 3')"});
  EXPECT_EQ(check.end.exit_status, 2);
  EXPECT_THAT(check.err, HasSubstr(":1:1: optim: is a single value"));
}

TEST(Train, QuietSaysNothingOfItsOwn) {
  const Rig rig;
  const auto output = rig.run({"train", "recipe.yaml", "-q"});
  EXPECT_EQ(output.end.exit_status, 0);
  EXPECT_THAT(output.err, IsEmpty());
}

TEST(Train, RunDirIsTheRunsDirectory) {
  const Rig rig("echo \"$2\"\n");
  const auto output = rig.run({"train", "recipe.yaml", "--run-dir", "my runs/one"});
  EXPECT_EQ(output.end.exit_status, 0) << output.err;
  EXPECT_EQ(output.out, "my runs/one\n");
  const auto again = rig.run({"train", "recipe.yaml", "--run-dir", "my runs/one"});
  EXPECT_EQ(again.end.exit_status, 2);
  EXPECT_THAT(again.err, HasSubstr("my runs/one' exists already"));
  EXPECT_THAT(test::names_in(rig.path("my runs")), ElementsAre("one"));
}

// A requeue loop gives the same command again, whatever came of the one before.
TEST(Train, ARunThatWasCutBeforeItsFirstCheckpointBeginsAgain) {
  for (const auto* resume : {"auto", "never"}) {
    const Rig rig("test -e fine || exit 3\n");
    const std::vector<std::string> command{"train", "recipe.yaml", "--run-dir",
                                           "one",   "--resume",    resume};
    EXPECT_EQ(rig.run(command).end.exit_status, 3);
    test::write_file(rig.path("fine"), "");
    const auto again = rig.run(command);
    EXPECT_EQ(again.end.exit_status, 0) << again.err;
    EXPECT_THAT(again.err, HasSubstr("one' has no checkpoint; it starts over"));
  }
}

TEST(Train, ARunThatWasCutBeginsAgainWhereItIsToldTo) {
  const Rig rig("mkdir -p $2/checkpoints/step_3; exit 143\n");
  const std::vector<std::string> command{"train", "recipe.yaml", "--run-dir",
                                         "one",   "--resume",    "never"};
  for (const bool again : {false, true}) {
    const auto output = rig.run(command);
    // The same command would not resume from what was saved.
    EXPECT_EQ(output.end.exit_status, 143) << output.err;
    EXPECT_EQ(output.err.find("one' is not to resume from its checkpoints "
                              "(checkpoint.resume=never); it starts over") !=
                  std::string::npos,
              again);
  }
}

TEST(Train, AResumeFromNothingButDamagedOnesNamesThem) {
  const Rig rig;
  std::filesystem::create_directories(rig.path("other/checkpoints/step_4"));
  const auto output = rig.run({"train", "recipe.yaml", "--resume", "other"});
  EXPECT_EQ(output.end.exit_status, 3);
  EXPECT_THAT(
      output.err,
      HasSubstr("checkpoint.resume: none of the 1 in 'other/checkpoints' is valid:\n"
                "  step_4: "));
  EXPECT_THAT(output.err, HasSubstr("or train from the beginning (--resume never)"));
}

TEST(Train, ErrorsOfEarlierRanksAreTakenAway) {
  const Rig rig("exit 3\n");
  rig.run({"train", "recipe.yaml", "--run-dir", "one"});
  test::write_file(rig.path("one/error_rank_5000.json"), "{}");
  rig.run({"train", "recipe.yaml", "--run-dir", "one"});
  EXPECT_FALSE(std::filesystem::exists(rig.path("one/error_rank_5000.json")));
}

// A job that a scheduler stops while its plan is made has lost nothing.
TEST(Train, AStopWhilePlanningIsResumableWhereThereIsACheckpoint) {
  for (const bool saved : {false, true}) {
    for (const int signal : {SIGTERM, SIGUSR1, SIGHUP}) {
      const Rig rig;
      test::write_file(rig.path("bin/lockstep_worker"),
                       "#!/bin/sh\ntouch planning\nexec sleep 60\n");
      if (saved) {
        std::filesystem::create_directories(rig.path("one/checkpoints/step_2"));
      }
      auto train = process::Child::start(
          rig.command({"train", "recipe.yaml", "--run-dir", "one", "-q"}));
      ASSERT_TRUE(test::eventually(
          [&] { return std::filesystem::exists(rig.path("planning")); }));
      train.signal(signal);
      const auto end = train.wait_for(test::kPatience);
      ASSERT_TRUE(end.has_value());
      EXPECT_EQ(end->shell_status(), saved ? 75 : 128 + signal);
    }
  }
}

TEST(Train, DryRunPrintsThePlanAndWritesNothing) {
  const Rig rig;
  const auto before = test::names_in(rig.path("."));
  const auto output = rig.run({"train", "recipe.yaml", "--dry-run"});
  EXPECT_EQ(output.end.exit_status, 0);
  EXPECT_THAT(output.out, HasSubstr("plan parallel.ranks = 1"));
  const auto object = rig.run({"train", "recipe.yaml", "-n", "--json"});
  EXPECT_THAT(object.out, ::testing::StartsWith("{"));
  EXPECT_EQ(test::names_in(rig.path(".")), before);
}

TEST(Train, NoAutoRefusesWhatIsLeftOpen) {
  const Rig rig;
  const auto output = rig.run({"train", "recipe.yaml", "--no-auto"});
  EXPECT_EQ(output.end.exit_status, 2);
  EXPECT_THAT(output.err, HasSubstr("parallel.device"));
  EXPECT_FALSE(std::filesystem::exists(rig.path("runs")));
}

TEST(Train, AWrongRequestLeavesNothingBehind) {
  const Rig rig;
  test::write_file(rig.path("bad.yaml"), "optim: {lr: -1}\n");
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"train"},
           {"train", "missing.yaml"},
           {"train", "bad.yaml"},
           {"train", "recipe.yaml", "optim.rl=1"},
           {"train", "recipe.yaml", "--ranks", "4", "parallel.strategy=single"},
           {"train", "recipe.yaml", "--resume", "some/checkpoint"},
           {"train", "recipe.yaml", "--grace-period", "0"},
           {"train", "recipe.yaml", "--grace-period", "24h1s"},
           {"train", "recipe.yaml", "--grace-period", "9000000000000000s"},
           {"train", "recipe.yaml", "--rnks", "1"}}) {
    const auto output = rig.run(words);
    EXPECT_THAT(output.end.exit_status, ::testing::AnyOf(2, 3))
        << text::join(words, " ");
    EXPECT_THAT(output.err, ::testing::StartsWith("lockstep: error: "));
    EXPECT_THAT(output.out, IsEmpty());
    EXPECT_FALSE(std::filesystem::exists(rig.path("runs"))) << text::join(words, " ");
  }
}

TEST(Train, AMissingWorkerIsOneClearLine) {
  const Rig rig;
  std::filesystem::remove(rig.path("bin/lockstep_worker"));
  const auto output = rig.run({"train", "recipe.yaml"});
  EXPECT_EQ(output.end.exit_status, 3);
  EXPECT_THAT(output.err, HasSubstr("bin/lockstep_worker' does not exist; build it"));
  EXPECT_FALSE(std::filesystem::exists(rig.path("runs")));
}

TEST(Train, ARunDirectoryThatCanNotBeMadeIsOneClearLine) {
  const Rig rig;
  test::write_file(rig.path("file"), "");
  const auto output = rig.run({"train", "recipe.yaml", "run.dir=file/runs"});
  EXPECT_EQ(output.end.exit_status, 3);
  EXPECT_THAT(output.err, HasSubstr("run.dir: no run can be made in 'file/runs'"));
}

// The kernel sends a signal that kills; ours is an error like that of a full disk.
TEST(Train, ALimitOfFileSizesIsOneClearLineAndNothingIsLeft) {
  const Rig rig;
  auto command = rig.command({"train", "recipe.yaml"});
  command.arguments.insert(command.arguments.begin(),
                           {"/bin/bash", "-c", "ulimit -f 1; exec \"$@\"", "bash"});
  const auto output = process::run(command, test::kPatience);
  EXPECT_EQ(output.end.shell_status(), 3) << output.err;
  EXPECT_THAT(output.err, HasSubstr("File too large; raise the limit of file sizes "
                                    "(ulimit -f) or choose another place"));
  EXPECT_FALSE(std::filesystem::exists(rig.path("runs")));
}

TEST(Train, AFailedWorkersErrorIsPrintedOnce) {
  const Rig rig(
      "echo '{\"message\":{\"message\":\"lockstep.Fault.io: data: no such set\"},"
      "\"fault\":\"io\"}' > $2/error_rank_0.json; exit 4\n");
  const auto output = rig.run({"train", "recipe.yaml", "-q"});
  EXPECT_EQ(output.end.exit_status, 3);
  EXPECT_EQ(output.err,
            "lockstep: error: data: no such set\n"
            "lockstep: the run is kept in runs/0001\n");
  EXPECT_EQ(RunDirectory::open(rig.path("runs/0001")).read_record().state,
            RunStatus::failed);
}

TEST(Train, AFailedRunStartsAgainAsOftenAsAllowed) {
  const Rig rig(
      "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0\n"
      "echo '{\"message\":{\"message\":\"lost a peer\"},\"fault\":\"comm\"}' > "
      "$2/error_rank_0.json; exit 5\n");
  const auto output = rig.run({"train", "recipe.yaml", "-q", "--max-restarts", "1"});
  EXPECT_EQ(output.end.exit_status, 0);
  EXPECT_EQ(output.err, "\nlockstep: lost a peer; all ranks restart in 1s (1 of 1)\n");
  EXPECT_EQ(rig.run({"train", "recipe.yaml", "-q"}).end.exit_status, 1);
}

TEST(Train, SeveralRanksReportTheFirstThatFailed) {
  const Rig rig(
      "[ $RANK = 1 ] && { echo doomed >&2; kill -SEGV $$; }\n"
      "exec cat never\n");
  ::mkfifo(rig.path("never").c_str(), 0600);
  const auto output = rig.run({"train", "recipe.yaml", "-q", "--ranks", "2"});
  EXPECT_EQ(output.end.exit_status, 139);
  EXPECT_THAT(output.err, HasSubstr("lockstep: error: rank 1 (pid "));
  EXPECT_THAT(output.err, HasSubstr(") ended by signal 11 (SIGSEGV); last "
                                    "lines of its log:\n  doomed\nrank 0 (pid "));
}

TEST(Train, ACrashIsAnErrorLineNotAStackTrace) {
  const Rig rig("kill -SEGV $$\n");
  const auto output = rig.run({"train", "recipe.yaml", "-q"});
  EXPECT_EQ(output.end.exit_status, 139);
  EXPECT_THAT(output.err,
              ::testing::StartsWith("lockstep: error: rank 0 ended by signal 11"));
}

// The program with a worker that says when it is ready, and whom to signal.
class RunningTrain : public ::testing::Test {
 protected:
  void start(const std::string& traps,
             const std::string& wait_forever = "cat never & while :; do wait; done\n") {
    ::mkfifo(rig_.path("never").c_str(), 0600);
    ::signal(SIGINT, SIG_DFL);  // ignored where tests run in the background
    rig_.worker(traps + "echo $$ > pid.new; mv pid.new pid\n" + wait_forever);
    auto command = rig_.command({"train", "recipe.yaml", "-q"});
    command.err = process::StreamMode::pipe;
    child_.emplace(process::Child::start(command));
    ASSERT_TRUE(
        test::eventually([this] { return std::filesystem::exists(rig_.path("pid")); }));
    worker_ = static_cast<pid_t>(
        *text::to_integer(text::trim(test::read_file(rig_.path("pid")))));
  }

  char worker_state() const {
    const auto stat = test::read_file("/proc/" + std::to_string(worker_) + "/stat");
    return stat.empty() ? 'X' : stat[stat.rfind(')') + 2];
  }

  bool worker_is_gone() const {
    return test::eventually([this] {
      const char state = worker_state();
      return state == 'X' || state == 'Z';
    });
  }

  Rig rig_;
  std::optional<process::Child> child_;
  pid_t worker_ = 0;
};

TEST_F(RunningTrain, CtrlCStopsTheWorkerAndEndsWithItsStatus) {
  start("trap 'exit 130' INT\n");
  child_->signal(SIGINT);
  const auto end = child_->wait_for(test::kPatience);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->exit_status, 130);
  const auto record = RunDirectory::open(rig_.path("runs/0001")).read_record();
  EXPECT_EQ(record.state, RunStatus::stopped);
  EXPECT_EQ(record.message, "stopped by SIGINT");
}

TEST_F(RunningTrain, KillingTheProgramKillsTheWorker) {
  start("trap '' TERM HUP INT\n", "exec cat never\n");
  ::kill(child_->pid(), SIGKILL);
  EXPECT_EQ(child_->wait().signal, SIGKILL);
  EXPECT_TRUE(worker_is_gone());
  const auto status = rig_.run({"status"});
  EXPECT_THAT(status.out, HasSubstr("failed (process is gone)"));
}

TEST_F(RunningTrain, CtrlZStopsBothAndFgContinuesBoth) {
  start("trap 'exit 143' TERM\n");
  child_->signal(SIGTSTP);
  int status = 0;
  ASSERT_EQ(::waitpid(child_->pid(), &status, WUNTRACED), child_->pid());
  EXPECT_TRUE(WIFSTOPPED(status));
  EXPECT_TRUE(test::eventually([this] { return worker_state() == 'T'; }));
  child_->signal(SIGCONT);
  EXPECT_TRUE(test::eventually([this] { return worker_state() != 'T'; }));
  child_->signal(SIGTERM);
  const auto end = child_->wait_for(test::kPatience);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->exit_status, 143);
}

}  // namespace
}  // namespace lockstep
