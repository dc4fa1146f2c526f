// The end of a run, seen from outside: what is left, and what the same command does.
#include <signal.h>

#include "lockstep/run/events.h"
#include "tests/system/training.h"

namespace lockstep {
namespace {

using run::RunStatus;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::vector<std::string>& small_model() {
  static const std::vector<std::string> knobs{"model.name=mlp", "model.hidden=16"};
  return knobs;
}

class RunEnding : public testing::Test {
 protected:
  process::Output train(int ranks, const std::vector<std::string>& more) {
    return test::run(
        test::train_command(run_, ranks, test::joined(small_model(), more)));
  }
  std::vector<std::string> kept() const {
    std::vector<std::string> texts;
    for (const auto* name :
         {"metrics.jsonl", "summary.json", "model.safetensors", "config.yaml"}) {
      texts.push_back(test::read_file(run_ / name));
    }
    return texts;
  }

  files::TemporaryDirectory folder_;
  test::Path run_ = folder_.path() / "run";
};

TEST_F(RunEnding, AFinishedRunIsExportedExtendedAndNotRepeated) {
  const auto first = train(2, {"train.steps=4"});
  ASSERT_EQ(first.end.shell_status(), 0) << first.err;
  const auto exported = test::lockstep_command(
      {"checkpoint", "export", run_.string(), "--to", (folder_.path() / "x").string()});
  EXPECT_EQ(exported.end.shell_status(), 0) << exported.err;
  const auto before = kept();
  const auto again = train(2, {"train.steps=4"});
  EXPECT_EQ(again.end.shell_status(), 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("finished at step 4 (done, test loss "));
  EXPECT_EQ(kept(), before);
  const auto fewer = train(1, {"train.steps=3"});
  EXPECT_EQ(fewer.end.shell_status(), 0) << fewer.err;
  EXPECT_THAT(fewer.err, HasSubstr("finished at step 4 (done, test loss "));
  EXPECT_EQ(kept(), before);
  EXPECT_EQ(test::record_of(run_).state, RunStatus::done);
  EXPECT_EQ(test::read_file(run_ / "metrics.jsonl"), before[0]);
  EXPECT_EQ(test::read_file(run_ / "model.safetensors"), before[2]);
  const auto more = train(2, {"train.steps=6"});
  EXPECT_EQ(more.end.shell_status(), 0) << more.err;
  EXPECT_THAT(more.err, HasSubstr("resuming from step 4: "));
  EXPECT_THAT(more.out, HasSubstr(" s since resuming, training time "));
}

TEST_F(RunEnding, APreparedRunThatIsOverEndsWellOnEveryRank) {
  const auto knobs = test::joined(small_model(), {"train.steps=4"});
  test::prepare_run(run_, 2, knobs);
  const auto command =
      test::launch_worker({"--nproc-per-node", "2"}, {"--run-dir", run_.string()});
  for (const bool again : {false, true}) {
    const auto before = again ? kept() : std::vector<std::string>();
    const auto output = test::run(command);
    EXPECT_EQ(output.end.shell_status(), 0) << output.err;
    EXPECT_EQ(test::record_of(run_).state, RunStatus::done);
    if (again) {
      EXPECT_EQ(kept(), before);
    }
  }
}

// Standard output that is full loses a table, not a run.
TEST_F(RunEnding, AResultThatCanNotBePrintedLeavesTheRunDone) {
  auto words =
      test::train_command(run_, 1, test::joined(small_model(), {"train.steps=3"}));
  const auto output =
      test::run(test::joined({"/bin/sh", "-c", "\"$@\" > /dev/full", "sh"}, words));
  EXPECT_EQ(output.end.shell_status(), 3) << output.err;
  EXPECT_THAT(
      output.err,
      AllOf(HasSubstr(
                "cannot write the result to standard output: No space left on device"),
            Not(HasSubstr("the run is kept in"))));
  EXPECT_EQ(test::record_of(run_).state, RunStatus::done);
  EXPECT_TRUE(std::filesystem::exists(run_ / "model.safetensors"));
}

TEST_F(RunEnding, CtrlCEndsWithTheCommandThatGoesOn) {
  const std::vector<std::string> words{test::binary("lockstep").string(),
                                       "train",
                                       test::quick_recipe(),
                                       "--ranks",
                                       "1",
                                       "parallel.threads=1",
                                       "model.name=mlp",
                                       "model.hidden=16",
                                       test::kEndless};
  const auto runs = folder_.path() / "runs" / "0001";
  const auto start = [&](const std::vector<std::string>& arguments) {
    ::signal(SIGINT, SIG_DFL);  // ignored where tests run in the background
    process::ProcessOptions command{.arguments = arguments,
                                    .directory = folder_.path()};
    command.err = process::StreamMode::pipe;
    command.out = process::StreamMode::discard;
    command.own_group = true;
    return process::Child::start(command);
  };
  const auto all_of = [](process::Child& child) {
    std::string text;
    char buffer[4096];
    while (const auto got = ::read(child.err().get(), buffer, sizeof buffer)) {
      if (got < 0) break;
      text.append(buffer, static_cast<std::size_t>(got));
    }
    return text;
  };
  auto child = start(words);
  ASSERT_TRUE(test::trains(runs, 1));
  ::kill(child.pid(), SIGINT);
  const auto said = all_of(child);
  EXPECT_EQ(child.wait().exit_status, 130);
  const std::string before = "; resume with:\n  ";
  const auto at = said.find(before);
  ASSERT_NE(at, std::string::npos) << said;
  EXPECT_THAT(said, HasSubstr("its last checkpoint is runs/0001/checkpoints/step_"));
  const auto line = said.substr(
      at + before.size(), said.find('\n', at + before.size()) - at - before.size());
  EXPECT_THAT(line, testing::EndsWith(" --run-dir runs/0001"));
  EXPECT_THAT(line, testing::StartsWith(test::binary("lockstep").string() + " train "));

  auto next = start({"/bin/sh", "-c", "exec " + line});
  ASSERT_TRUE(test::eventually(
      [&] { return run::count_events(runs / "events.jsonl", "started") == 2; }));
  ::kill(next.pid(), SIGTERM);
  EXPECT_THAT(all_of(next), HasSubstr("resuming from step "));
  EXPECT_EQ(next.wait().exit_status, kExitStopped);
}

TEST_F(RunEnding, MetricsSayWhichAttemptWroteThem) {
  ASSERT_EQ(train(1, {"train.steps=3"}).end.shell_status(), 0);
  ASSERT_EQ(train(1, {"train.steps=5"}).end.shell_status(), 0);
  std::map<std::int64_t, std::int64_t> attempts;
  for (const auto& line : monitor::read_metrics(run_ / "metrics.jsonl")) {
    if (line.split == monitor::Split::train) attempts[line.step] = line.attempt;
  }
  EXPECT_EQ(attempts, (std::map<std::int64_t, std::int64_t>{
                          {1, 1}, {2, 1}, {3, 1}, {4, 2}, {5, 2}}));
}

// 43 billion parameters: counted, and refused with the arithmetic.
TEST_F(RunEnding, AModelLargerThanMemoryIsRefusedBeforeItTakesAny) {
  const std::vector<std::string> huge{
      "parallel.device=cpu",   "model.name=mlp",      "model.hidden=65536",
      "model.layers=10",       "data.name=synthetic", "data.synthetic_samples=1000",
      "data.shape=[1, 28, 28]"};
  for (const std::string command : {"plan", "train"}) {
    auto words = test::joined(
        {test::binary("lockstep").string(), command, test::quick_recipe()}, huge);
    if (command == "train") words.insert(words.end(), {"--run-dir", run_.string()});
    const auto output =
        test::run(words, {{"XDG_STATE_HOME", (folder_.path() / "state").string()}});
    EXPECT_EQ(output.end.shell_status(), 3) << command << output.err;
    EXPECT_THAT(output.err,
                AllOf(HasSubstr("parameters 144.2 GiB + gradients 144.2 GiB"),
                      HasSubstr("nothing fits on this machine")))
        << command;
  }
  EXPECT_FALSE(std::filesystem::exists(run_));
}

}  // namespace
}  // namespace lockstep
