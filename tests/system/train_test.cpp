#include <nlohmann/json.hpp>
#include <signal.h>

#include "lockstep/base/text.h"
#include "lockstep/config/load.h"
#include "lockstep/run/events.h"
#include "lockstep/run/heartbeat.h"
#include "tests/hardware/fake_machine.h"
#include "tests/support/oracle.h"
#include "tests/system/command.h"

namespace lockstep {
namespace {

using run::RunDirectory;
using run::RunStatus;
using testing::HasSubstr;

class Train : public testing::Test {
 protected:
  process::Output train(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"train", test::quick_recipe(), "--run-dir",
                                       run_.string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return test::lockstep_command(arguments);
  }

  files::TemporaryDirectory folder_;
  test::Path run_ = folder_.path() / "run";
};

// They idle, or others use them: neither an alert nor a number of this run.
TEST_F(Train, OnTheCpuLooksAtNoGpu) {
  const test::FakeMachine machine(test::fake_gpus(4));
  std::filesystem::remove(machine.root() / "usr/lib/libcuda.so.1");  // not LibTorch's
  const auto output =
      test::run({test::binary("lockstep").string(), "train", test::quick_recipe(),
                 "--run-dir", run_.string(), "parallel.device=cpu", "train.steps=2"},
                {{"LD_LIBRARY_PATH", (machine.root() / "usr/lib").string()}});
  ASSERT_EQ(output.end.shell_status(), 0) << output.err;
  const auto run = RunDirectory::open(run_);
  EXPECT_THAT(test::read_file(run.machine()), HasSubstr("Example H200"));
  const auto summary = test::read_file(run.summary());
  EXPECT_THAT(summary, HasSubstr("\"process_memory_bytes\""));
  EXPECT_THAT(summary, testing::Not(HasSubstr("\"gpu_")));
}

TEST_F(Train, LeavesACompleteRunDirectory) {
  const auto output = train();
  ASSERT_EQ(output.end.shell_status(), 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("test accuracy"));
  const auto run = RunDirectory::open(run_);
  const auto record = run.read_record();
  EXPECT_EQ(record.state, RunStatus::done);
  EXPECT_EQ(record.exit, 0);
  EXPECT_TRUE(config::auto_keys(config::load(run.config(), {}, {})).empty());
  EXPECT_FALSE(monitor::read_metrics(run.metrics()).empty());
  EXPECT_TRUE(monitor::last_metrics(run.metrics(), monitor::Split::eval));
  EXPECT_FALSE(run::last_events(run.events(), 10).empty());
  EXPECT_EQ(run::HeartbeatReader(run.heartbeat()).read(0)->phase, run::Phase::finished);
  EXPECT_TRUE(std::filesystem::exists(run.log(0)));
  EXPECT_TRUE(std::filesystem::exists(run_ / "model.safetensors"));
  EXPECT_NO_THROW(nlohmann::json::parse(test::read_file(run.plan())));
}

// Records of one label byte and 3 * 32 * 32 bytes of an image.
void write_cifar(const test::Path& folder) {
  std::filesystem::create_directories(folder);
  for (const auto* name : {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                           "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"}) {
    std::string bytes;
    for (int i = 0; i < 16; ++i) {
      bytes += static_cast<char>(i % 10);
      bytes += std::string(3 * 32 * 32, static_cast<char>(i * 15));
    }
    files::write_atomically(folder / name, bytes);
  }
}

TEST_F(Train, TheResNetRecipeRunsOnCifarAndOnClothesOfItsSize) {
  const auto recipe =
      (test::Path(test::quick_recipe()).parent_path() / "resnet18_cifar10.yaml")
          .string();
  const auto cifar = folder_.path() / "cifar";
  write_cifar(cifar);
  const std::vector<std::string> clothes{"data.name=fashion_mnist",
                                         "data.dir=", "data.resize=32",
                                         "data.mean=0.286", "data.std=0.353"};
  const std::vector<std::string> images{"data.dir=" + cifar.string()};
  for (const auto& data : {clothes, images}) {
    std::vector<std::string> arguments{
        "train",
        recipe,
        "--run-dir",
        run_.string(),
        "--epochs",
        "2",
        "--batch",
        "8",
        "--lr",
        "0.01",
        "--amp",
        "--ema",
        "train.fast_dev_run=2",
        "batch.eval=8",
    };
    arguments.insert(arguments.end(), data.begin(), data.end());
    const auto output = test::lockstep_command(arguments);
    ASSERT_EQ(output.end.shell_status(), 0) << output.err;
    EXPECT_THAT(output.out, HasSubstr("2 (16 samples)"));
    EXPECT_TRUE(std::filesystem::exists(run_ / "ema.safetensors"));
    EXPECT_TRUE(std::filesystem::exists(run_ / "best.safetensors"));
    std::filesystem::remove_all(run_);
  }
}

TEST_F(Train, EveryLineOfMetricsHasWhatOthersRelyOn) {
  ASSERT_EQ(train().end.shell_status(), 0);
  std::istringstream lines(test::read_file(run_ / "metrics.jsonl"));
  std::string line;
  int count = 0;
  while (std::getline(lines, line)) {
    const auto json = nlohmann::json::parse(line);
    EXPECT_TRUE(json["step"].is_number_integer()) << line;
    EXPECT_THAT((std::vector<std::string>{"train", "eval"}),
                testing::Contains(json["split"].get<std::string>()));
    EXPECT_TRUE(json["loss"].is_number()) << line;
    EXPECT_TRUE(json["time"].is_number()) << line;
    ++count;
  }
  EXPECT_GT(count, 2);
}

TEST_F(Train, ARerunHasTheSameLossesToTheLastBit) {
  ASSERT_EQ(train({"train.log_every=1"}).end.shell_status(), 0);
  const auto first = test::losses_in(run_);
  run_ = folder_.path() / "again";
  ASSERT_EQ(train({"train.log_every=1"}).end.shell_status(), 0);
  EXPECT_EQ(first, test::losses_in(run_));
  EXPECT_GT(first.size(), 10u);
}

TEST_F(Train, PyTorchFindsTheSameAccuracyInTheSavedWeights) {
  LOCKSTEP_NEEDS_ORACLE();
  ASSERT_EQ(train().end.shell_status(), 0);
  const auto eval = monitor::last_metrics(run_ / "metrics.jsonl", monitor::Split::eval);
  ASSERT_TRUE(eval);
  test::expect_oracle_agrees(
      "accuracy.py",
      {(run_ / "model.safetensors").string(), str(*eval->find("samples")),
       text::from_double(*eval->find("accuracy")), text::from_double(eval->loss)});
}

TEST_F(Train, TheResultIsAlsoAJsonObject) {
  const auto output = train({"--json"});
  ASSERT_EQ(output.end.shell_status(), 0) << output.err;
  const auto json = nlohmann::json::parse(output.out);
  EXPECT_GT(json["eval_accuracy"], 0.3);
}

TEST_F(Train, DebugRunsAFewSmallSteps) {
  const auto output = train({"--debug"});
  ASSERT_EQ(output.end.shell_status(), 0) << output.err;
  const auto loaded = config::load(run_ / "config.yaml", {}, {});
  EXPECT_LE(loaded.config.train.steps.value(), 10);
  EXPECT_LE(loaded.config.batch.global.value(), 8);
  EXPECT_TRUE(loaded.config.train.anomaly);
}

TEST_F(Train, TheLogSaysWhatWasDoneAndDebugShowsIt) {
  const auto quiet = train();
  EXPECT_THAT(quiet.err, testing::Not(HasSubstr(" r0 train ")));
  const auto log = test::read_file(run_ / "logs" / "rank_0.log");
  EXPECT_THAT(log, testing::ContainsRegex("I [0-9:.]+ r0 data     fashion_mnist: 2048 "
                                          "training and 1000 test samples"));
  EXPECT_THAT(log, testing::Not(HasSubstr("step 23: ")));  // no line for every step
  run_ = folder_.path() / "debug";
  EXPECT_THAT(train({"--debug"}).err, HasSubstr(" r0 train    step 5: 8 samples"));
  EXPECT_THAT(test::read_file(run_ / "logs" / "rank_0.log"),
              testing::ContainsRegex("D [0-9:.]+ r0 train    step 5: 8 samples"));
}

TEST_F(Train, AReaderThatGoesAwayDoesNotEndTheTraining) {
  const auto output = test::run({"bash", "-c",
                                 "'" + test::binary("lockstep").string() + "' train '" +
                                     test::quick_recipe() + "' --run-dir '" +
                                     run_.string() + "' 2>&1 | head -1"});
  EXPECT_TRUE(output.end.ok());
  EXPECT_EQ(RunDirectory::open(run_).read_record().state, RunStatus::done);
}

TEST_F(Train, ClosedStreamsDoNotLandInTheRunsFiles) {
  const auto output = test::run({"bash", "-c",
                                 "'" + test::binary("lockstep").string() + "' train '" +
                                     test::quick_recipe() + "' --run-dir '" +
                                     run_.string() + "' <&- >&- 2>&-"});
  EXPECT_EQ(output.end.shell_status(), 0);
  EXPECT_THAT(test::read_file(run_ / "events.jsonl"), testing::StartsWith("{\"time\""));
  EXPECT_THAT(test::read_file(run_ / "logs" / "rank_0.log"),
              testing::Not(HasSubstr("test accuracy")));
}

TEST_F(Train, AResultThatCanNotBeWrittenIsAFailure) {
  const auto output = test::run({"bash", "-c",
                                 "'" + test::binary("lockstep").string() + "' train '" +
                                     test::quick_recipe() + "' -q --run-dir '" +
                                     run_.string() + "' > /dev/full"});
  EXPECT_EQ(output.end.shell_status(), 3);
  EXPECT_EQ(test::run({"bash", "-c",
                       "'" + test::binary("lockstep").string() +
                           "' config reference > /dev/full"})
                .end.shell_status(),
            3);
}

TEST_F(Train, NoAutoRefusesWhatIsLeftAuto) {
  const auto output = train({"--no-auto"});
  EXPECT_EQ(output.end.shell_status(), 2);
  EXPECT_THAT(output.err, HasSubstr("parallel.ranks"));
  EXPECT_FALSE(std::filesystem::exists(run_));
}

// Starts an endless run and waits until it has taken a step.
class Running {
 public:
  Running(const test::Path& run, bool inherit = false)
      : run_(run),
        child_(process::Child::start(
            {.arguments = {test::binary("lockstep").string(), "train",
                           test::quick_recipe(), "--run-dir", run.string(),
                           "train.steps=1000000", "train.log_every=1"},
             .out =
                 inherit ? process::StreamMode::inherit : process::StreamMode::discard,
             .err = inherit ? process::StreamMode::inherit
                            : process::StreamMode::discard})) {}

  bool wait_for_a_step() {
    return test::eventually([&] {
      return monitor::last_metrics(run_ / "metrics.jsonl", monitor::Split::train)
          .has_value();
    });
  }
  int worker_pid() const {
    return run::HeartbeatReader(run_ / "heartbeat").read(0)->pid;
  }
  process::Child& child() { return child_; }

 private:
  test::Path run_;
  process::Child child_;
};

bool is_gone(int pid) {
  return test::eventually([&] { return ::kill(pid, 0) != 0; });
}

TEST_F(Train, OneInterruptEndsItCleanlyAndSaysSo) {
  Running running(run_);
  ASSERT_TRUE(running.wait_for_a_step());
  const int worker = running.worker_pid();
  running.child().signal(SIGINT);
  const auto end = running.child().wait_for(test::kPatience);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->shell_status(), 130);
  EXPECT_TRUE(is_gone(worker));
  const auto record = RunDirectory::open(run_).read_record();
  EXPECT_EQ(record.state, RunStatus::stopped);
  EXPECT_EQ(run::last_events(run_ / "events.jsonl", 1).back().kind, "stopped");
}

TEST_F(Train, TermHangUpAndUsr1EndItCleanlyAndKeepTheWeights) {
  for (const int number : {SIGTERM, SIGHUP, SIGUSR1}) {
    run_ = folder_.path() / str("signal", number);
    Running running(run_);
    ASSERT_TRUE(running.wait_for_a_step());
    running.child().signal(number);
    const auto end = running.child().wait_for(test::kPatience);
    ASSERT_TRUE(end);
    EXPECT_EQ(end->shell_status(), kExitStopped) << number;
    EXPECT_EQ(RunDirectory::open(run_).read_record().state, RunStatus::stopped);
    EXPECT_TRUE(std::filesystem::exists(run_ / "model.safetensors"));
    EXPECT_TRUE(std::filesystem::exists(run_ / "checkpoints" / "last"));
  }
}

TEST_F(Train, AKilledWorkerIsReportedWithItsSignal) {
  Running running(run_);
  ASSERT_TRUE(running.wait_for_a_step());
  ::kill(running.worker_pid(), SIGKILL);
  const auto end = running.child().wait_for(test::kPatience);
  ASSERT_TRUE(end);
  EXPECT_NE(end->shell_status(), 0);
  const auto record = RunDirectory::open(run_).read_record();
  EXPECT_EQ(record.state, RunStatus::failed);
  EXPECT_THAT(record.message, HasSubstr("signal 9"));
}

TEST_F(Train, AKilledCommandTakesItsWorkerAlong) {
  Running running(run_);
  ASSERT_TRUE(running.wait_for_a_step());
  const int worker = running.worker_pid();
  running.child().signal(SIGKILL);
  ASSERT_TRUE(running.child().wait_for(test::kPatience));
  EXPECT_TRUE(is_gone(worker));
  const auto status = test::lockstep_command({"status", run_.string()});
  EXPECT_THAT(status.out, HasSubstr("process is gone"));
}

TEST_F(Train, StatusAndRunsReadTheRunDirectory) {
  ASSERT_EQ(train().end.shell_status(), 0);
  const auto status = test::lockstep_command({"status", run_.string(), "--json"});
  ASSERT_EQ(status.end.shell_status(), 0) << status.err;
  EXPECT_EQ(nlohmann::json::parse(status.out)["state"], "done");
  const auto runs = test::lockstep_command({"runs", folder_.path().string()});
  EXPECT_THAT(runs.out, HasSubstr("done"));
  EXPECT_THAT(runs.out, HasSubstr("fashion_mnist_quick"));
}

}  // namespace
}  // namespace lockstep
