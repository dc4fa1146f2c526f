// A command that is given again, and the lines that a run which is not over ends with.
#include <sys/wait.h>

#include "lockstep/monitor/run_directory.h"
#include "tests/cli/rig.h"

namespace lockstep {
namespace {

using test::Rig;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

// A worker that comes to its end, as its event says.
std::string ending_worker(const std::string& reason, const std::string& over) {
  return "echo trained >> trained\necho '{\"time\":1.0,\"event\":\"done\",\"rank\":0,"
         "\"steps\":3,\"reason\":\"" +
         reason + "\",\"over\":" + over + "}' >> $2/events.jsonl\n";
}

int trainings_in(const Rig& rig) {
  const auto text = test::read_file(rig.path("trained"));
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

TEST(FinishedRun, RepeatingItsCommandChangesNothingAndSaysHowToGoOn) {
  const Rig rig(ending_worker("done", "true"));
  ASSERT_EQ(rig.run({"train", "recipe.yaml", "--run-dir", "one"}).end.exit_status, 0);
  const auto record = test::read_file(rig.path("one/run.json"));
  const auto again = rig.run({"train", "recipe.yaml", "--run-dir", "one"});
  EXPECT_EQ(again.end.exit_status, 0) << again.err;
  EXPECT_EQ(again.out, "");
  EXPECT_THAT(
      again.err,
      HasSubstr("lockstep: the run in ./one is over after step 3 (done); nothing was "
                "changed\nlockstep: raise train.steps or train.epochs to train on; "
                "name another --run-dir to begin anew\n"));
  EXPECT_EQ(trainings_in(rig), 1);
  EXPECT_EQ(test::read_file(rig.path("one/run.json")), record);
  // What has no say in when a run ends makes it no longer.
  EXPECT_EQ(rig.run({"train", "recipe.yaml", "--run-dir", "one", "train.log_every=7"})
                .end.exit_status,
            0);
  EXPECT_EQ(trainings_in(rig), 1);
}

TEST(FinishedRun, AProgramGetsAnAnswerToo) {
  const Rig rig(ending_worker("loss has not improved", "true"));
  rig.run({"train", "recipe.yaml", "--run-dir", "one"});
  const auto answer = rig.run({"train", "recipe.yaml", "--run-dir", "one", "--json"});
  EXPECT_EQ(answer.out,
            "{\"state\":\"done\",\"reason\":\"loss has not improved\",\"steps\":3,"
            "\"already_over\":true,\"weights\":\"\"}\n");
  EXPECT_THAT(answer.err, HasSubstr(", or change early_stop, to train on"));
  const auto prepared =
      rig.run({"train", "recipe.yaml", "--run-dir", "one", "--prepare"});
  EXPECT_THAT(prepared.out, EndsWith("/one\n"));
  EXPECT_EQ(monitor::RunDirectory::open(rig.path("one")).read_record().state,
            monitor::RunState::done);
}

TEST(FinishedRun, MoreStepsWithoutACheckpointAreRefused) {
  const Rig rig(ending_worker("done", "true"));
  rig.run({"train", "recipe.yaml", "--run-dir", "one"});
  const auto more =
      rig.run({"train", "recipe.yaml", "--run-dir", "one", "train.steps=9"});
  EXPECT_EQ(more.end.exit_status, 2);
  EXPECT_THAT(more.err, HasSubstr("is over after step 3 and has no checkpoint to go on "
                                  "from (checkpoint.save_last=false)"));
}

TEST(FinishedRun, MoreStepsAndACheckpointGoOn) {
  const Rig rig(ending_worker("done", "true") + "mkdir -p $2/checkpoints/step_3\n");
  rig.run({"train", "recipe.yaml", "--run-dir", "one"});
  const auto more =
      rig.run({"train", "recipe.yaml", "--run-dir", "one", "train.steps=9"});
  EXPECT_EQ(more.end.exit_status, 0) << more.err;
  EXPECT_EQ(trainings_in(rig), 2);
}

TEST(FinishedRun, OneThatRanOutOfTimeIsNotOver) {
  const Rig rig(ending_worker("train.max_time reached", "false") +
                "mkdir -p $2/checkpoints/step_3\n");
  const auto first = rig.run({"train", "recipe.yaml", "--run-dir", "one"});
  EXPECT_THAT(first.err,
              HasSubstr("its last checkpoint is ./one/checkpoints/step_3; this goes on "
                        "from there:\n  lockstep train recipe.yaml --run-dir one\n"));
  rig.run({"train", "recipe.yaml", "--run-dir", "one"});
  EXPECT_EQ(trainings_in(rig), 2);
}

// The words after "this goes on from there:" of a run that was stopped.
std::string resume_line(const Rig& rig, std::vector<std::string> words) {
  rig.worker(
      "mkdir -p \"$2\"/checkpoints/step_3 \"$2\"/checkpoints/step_12; exit 130\n");
  words.insert(words.begin(), "train");
  const auto output = rig.run(std::move(words));
  EXPECT_EQ(output.end.exit_status, 130) << output.err;
  EXPECT_THAT(output.err, AllOf(HasSubstr("lockstep: the run is kept in "),
                                HasSubstr("checkpoints/step_12; this goes on")));
  const std::string_view before = "this goes on from there:\n  ";
  const auto at = output.err.find(before);
  if (at == std::string::npos) return output.err;
  const auto begin = at + before.size();
  return output.err.substr(begin, output.err.find('\n', begin) - begin);
}

TEST(FinishedRun, AStoppedOneEndsWithTheCommandThatGoesOn) {
  const Rig rig;
  EXPECT_EQ(resume_line(rig, {"recipe.yaml", "optim.lr=0.5"}),
            "lockstep train recipe.yaml optim.lr=0.5 --run-dir runs/0001");
  EXPECT_EQ(resume_line(rig, {"recipe.yaml", "--run-dir", "it's mine"}),
            "lockstep train recipe.yaml --run-dir 'it'\\''s mine'");
  EXPECT_EQ(resume_line(rig, {"recipe.yaml", "run.dir=my runs"}),
            "lockstep train recipe.yaml 'run.dir=my runs' run.name=0001");
  EXPECT_EQ(resume_line(rig, {"recipe.yaml", "--resume", "never"}),
            "lockstep train runs/0002/config.yaml --run-dir runs/0002 --resume auto");
}

// It is for a shell: typed as it is, it goes on with that run.
TEST(FinishedRun, TheCommandThatGoesOnDoesSo) {
  const Rig rig;
  const auto line = resume_line(rig, {"recipe.yaml", "run.dir=my runs"});
  rig.worker("echo \"went on in $2\"\n");
  auto command = rig.command({});
  command.arguments = {"/bin/sh", "-c", "PATH=\"$PWD/bin:$PATH\"; " + line};
  const auto output = process::run(command, test::kPatience);
  EXPECT_EQ(output.end.exit_status, 0) << output.err;
  EXPECT_EQ(output.out, "went on in my runs/0001\n");
}

TEST(FinishedRun, ADirectoryThatIsGoneIsNotWhereItIsKept) {
  const Rig rig("rm -r $2; exit 130\n");
  const auto output = rig.run({"train", "recipe.yaml"});
  EXPECT_THAT(output.err, AllOf(HasSubstr("the run directory runs/0001 is gone"),
                                Not(HasSubstr("the run is kept in"))));
}

TEST(FinishedRun, AStopBeforeAnythingWasSavedSaysSo) {
  const Rig rig("exit 130\n");
  const auto output = rig.run({"train", "recipe.yaml"});
  EXPECT_THAT(output.err, HasSubstr("lockstep: the run is kept in runs/0001\n"
                                    "lockstep: no checkpoint was saved\n"));
}

}  // namespace
}  // namespace lockstep
