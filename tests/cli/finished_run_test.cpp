// A command that is given again, and the lines that a run which is not over ends with.
#include <sys/wait.h>

#include "lockstep/run/run_directory.h"
#include "tests/cli/rig.h"
#include "tests/storage/support/small_checkpoint.h"

namespace lockstep {
namespace {

using test::Rig;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

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
  EXPECT_THAT(again.err,
              HasSubstr("lockstep: the run in ./one finished at step 3 (done); "
                        "nothing was changed\n"
                        "lockstep: raise train.steps or train.epochs to train further; "
                        "name another --run-dir to start over\n"));
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
  EXPECT_THAT(answer.err, HasSubstr(", or change early_stop, to train further"));
  const auto prepared =
      rig.run({"train", "recipe.yaml", "--run-dir", "one", "--prepare"});
  EXPECT_THAT(prepared.out, EndsWith("/one\n"));
  EXPECT_EQ(run::RunDirectory::open(rig.path("one")).read_record().state,
            run::RunStatus::done);
}

TEST(FinishedRun, MoreStepsWithoutACheckpointAreRefused) {
  const Rig rig(ending_worker("done", "true"));
  rig.run({"train", "recipe.yaml", "--run-dir", "one"});
  const auto more =
      rig.run({"train", "recipe.yaml", "--run-dir", "one", "train.steps=9"});
  EXPECT_EQ(more.end.exit_status, 2);
  EXPECT_THAT(more.err, HasSubstr("finished at step 3 and has no checkpoint to resume "
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

TEST(FinishedRun, DoesNotBeginAnew) {
  const Rig rig(ending_worker("done", "true") + "mkdir -p $2/checkpoints/step_3\n");
  rig.run({"train", "recipe.yaml", "--run-dir", "one"});
  const auto anew =
      rig.run({"train", "recipe.yaml", "--run-dir", "one", "--resume", "never"});
  EXPECT_EQ(anew.end.exit_status, 2);
  EXPECT_THAT(anew.err, HasSubstr("finished at step 3 and does not start over "
                                  "(checkpoint.resume=never); name another --run-dir"));
  EXPECT_EQ(trainings_in(rig), 1);
}

// Its own checkpoints count, so the one that was requested would not be taken.
TEST(FinishedRun, DoesNotGoOnFromElsewhere) {
  const Rig rig(ending_worker("done", "true") + "mkdir -p $2/checkpoints/step_3\n");
  const auto train = [&](const std::string& resume, const std::string& steps) {
    return rig.run({"train", "recipe.yaml", "--run-dir", "one", "--resume", resume,
                    "train.steps=" + steps});
  };
  rig.run({"train", "recipe.yaml", "--run-dir", "one"});
  test::save_small(storage::FileSystem::real(), rig.path("other"), {.step = 1});
  for (const auto* steps : {"3", "9"}) {
    const auto refused = train("other/step_1", steps);
    EXPECT_EQ(refused.end.exit_status, 2);
    EXPECT_THAT(
        refused.err,
        HasSubstr("finished at step 3 and resumes from its own last "
                  "checkpoint only; to resume from 'other/step_1', name it with "
                  "another --run-dir"));
  }
  EXPECT_EQ(trainings_in(rig), 1);
  // Itself is nowhere else.
  test::save_small(storage::FileSystem::real(), rig.path("one/checkpoints"),
                   {.step = 3});
  EXPECT_EQ(train("one", "9").end.exit_status, 0);
  EXPECT_EQ(trainings_in(rig), 2);
}

// The same words as before are a repetition.
TEST(FinishedRun, OneThatBeganElsewhereIsOverLikeAnyOther) {
  const Rig rig(ending_worker("done", "true") + "mkdir -p $2/checkpoints/step_3\n");
  test::save_small(storage::FileSystem::real(), rig.path("other"), {.step = 1});
  for (int time = 0; time < 2; ++time) {
    const auto output = rig.run(
        {"train", "recipe.yaml", "--run-dir", "one", "--resume", "other/step_1"});
    EXPECT_EQ(output.end.exit_status, 0) << output.err;
  }
  EXPECT_EQ(trainings_in(rig), 1);
}

TEST(FinishedRun, OneThatRanOutOfTimeIsNotOver) {
  const Rig rig(ending_worker("train.max_time reached", "false") +
                "mkdir -p $2/checkpoints/step_3\n");
  const auto first = rig.run({"train", "recipe.yaml", "--run-dir", "one"});
  EXPECT_THAT(first.err,
              HasSubstr("its last checkpoint is ./one/checkpoints/step_3; resume "
                        "with:\n  " +
                        rig.program().string() + " train recipe.yaml --run-dir one\n"));
  rig.run({"train", "recipe.yaml", "--run-dir", "one"});
  EXPECT_EQ(trainings_in(rig), 2);
}

// The words after "resume with:" of a run that was stopped.
std::string resume_line(const Rig& rig, std::vector<std::string> words) {
  rig.worker(
      "mkdir -p \"$2\"/checkpoints/step_3 \"$2\"/checkpoints/step_12; exit 130\n");
  words.insert(words.begin(), "train");
  const auto output = rig.run(std::move(words));
  EXPECT_EQ(output.end.exit_status, 130) << output.err;
  EXPECT_THAT(output.err, AllOf(HasSubstr("lockstep: the run is kept in "),
                                HasSubstr("checkpoints/step_12; resume with:")));
  const std::string_view before = "resume with:\n  ";
  const auto at = output.err.find(before);
  if (at == std::string::npos) return output.err;
  const auto begin = at + before.size();
  return output.err.substr(begin, output.err.find('\n', begin) - begin);
}

// The words behind the program.
std::string resume_words(const Rig& rig, std::vector<std::string> words) {
  const auto line = resume_line(rig, std::move(words));
  const auto program = rig.program().string() + " ";
  EXPECT_THAT(line, StartsWith(program));
  return line.substr(std::min(program.size(), line.size()));
}

TEST(FinishedRun, AStoppedOneEndsWithTheCommandThatGoesOn) {
  const Rig rig;
  EXPECT_EQ(resume_words(rig, {"recipe.yaml", "optim.lr=0.5"}),
            "train recipe.yaml optim.lr=0.5 --run-dir runs/0001");
  EXPECT_EQ(resume_words(rig, {"recipe.yaml", "--run-dir", "it's mine"}),
            "train recipe.yaml --run-dir 'it'\\''s mine'");
  EXPECT_EQ(resume_words(rig, {"recipe.yaml", "run.dir=my runs"}),
            "train recipe.yaml 'run.dir=my runs' run.name=0001");
  EXPECT_EQ(resume_words(rig, {"recipe.yaml", "--resume", "never"}),
            "train runs/0002/config.yaml --run-dir runs/0002 --resume auto");
}

// The program and the knobs of the environment as they were given: another shell may
// have neither.
TEST(FinishedRun, TheCommandThatGoesOnHasTheVariablesThatSetKnobs) {
  const Rig rig("mkdir -p $2/checkpoints/step_3; exit 130\n");
  auto command = rig.command({"train", "recipe.yaml", "--run-dir", "one"});
  command.arguments[0] = "./bin/lockstep";
  command.environment.emplace_back("LOCKSTEP_OPTIM_LR", "0.25");
  command.environment.emplace_back("LOCKSTEP_TRAIN_STEPS", "7");
  const auto output = process::run(command, test::kPatience);
  const auto line =
      "LOCKSTEP_OPTIM_LR=0.25 LOCKSTEP_TRAIN_STEPS=7 ./bin/lockstep train recipe.yaml "
      "--run-dir one";
  EXPECT_THAT(output.err, HasSubstr(str("resume with:\n  ", line, "\n")));
  const auto run = run::RunDirectory::open(rig.path("one"));
  EXPECT_EQ(run.read_record().command, line);
  auto again = rig.command({});
  again.arguments = {"/bin/sh", "-c", line};
  EXPECT_EQ(process::run(again, test::kPatience).end.exit_status, 130);
  EXPECT_THAT(test::read_file(run.config()),
              AllOf(HasSubstr("lr: 0.25"), HasSubstr("steps: 7")));
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

// Step 2 was the last one with a loss that is a number.
TEST(FinishedRun, OneThatDivergedSaysFromWhereAnotherRecipeCanGoOn) {
  const Rig rig("exit 6\n");
  rig.run({"train", "recipe.yaml", "--run-dir", "one", "optim.lr=50"});
  const auto checkpoints = rig.path("one/checkpoints");
  for (const int step : {1, 2, 3}) {
    test::save_small(storage::FileSystem::real(), checkpoints, {.step = step});
  }
  rig.worker(R"(printf '%s\n' '{"step":2,"split":"train","loss":0.5,"time":1.0,)"
             R"("attempt":1}' '{"step":3,"split":"train","loss":"NaN","time":2.0,)"
             R"("attempt":1}' > $2/metrics.jsonl; exit 6)"
             "\n");
  const auto output =
      rig.run({"train", "recipe.yaml", "--run-dir", "one", "optim.lr=50"});
  EXPECT_EQ(output.end.exit_status, 1) << output.err;
  EXPECT_THAT(output.err,
              AllOf(HasSubstr("the loss was last finite at step 2; checkpoints of "
                              "later steps may hold NaN\n"),
                    HasSubstr("a lower optim.lr (it was 50) or another recipe\n"),
                    HasSubstr("its newest checkpoint from before that is "
                              "./one/checkpoints/step_2; resume from it with another "
                              "--run-dir and --resume ./one/checkpoints/step_2\n"),
                    Not(HasSubstr("resume with"))));
}

// One weight of it is not a number.
void save_nan(const test::Path& checkpoints, std::int64_t step) {
  auto& files = storage::FileSystem::real();
  auto tensors = test::small_tensors(1);
  tensors[1].bytes.replace(0, 4, "\xFF\xFF\xFF\xFF");
  const auto directory = storage::begin_save(files, checkpoints, step);
  std::vector<storage::WrittenFile> written;
  written.push_back(test::write_rank(files, directory, tensors, 0, 1));
  storage::publish(files, checkpoints,
                   {test::small_head({.step = step, .ranks = 1}), written});
}

TEST(FinishedRun, WeightsThatAreNoNumbersAreNoPlaceToGoOnFrom) {
  const Rig rig("exit 6\n");
  rig.run({"train", "recipe.yaml", "--run-dir", "one"});
  const auto checkpoints = rig.path("one/checkpoints");
  test::save_small(storage::FileSystem::real(), checkpoints, {.step = 1});
  save_nan(checkpoints, 2);
  const auto output = rig.run({"train", "recipe.yaml", "--run-dir", "one"});
  EXPECT_THAT(output.err, HasSubstr("from before that is ./one/checkpoints/step_1;"));
}

TEST(FinishedRun, AStopBeforeAnythingWasSavedSaysSo) {
  const Rig rig("exit 130\n");
  const auto output = rig.run({"train", "recipe.yaml"});
  EXPECT_THAT(output.err, HasSubstr("lockstep: the run is kept in runs/0001\n"
                                    "lockstep: no checkpoint was saved\n"));
}

}  // namespace
}  // namespace lockstep
