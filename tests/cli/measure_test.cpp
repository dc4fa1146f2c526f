// `lockstep hardware bench` and `lockstep gpus test` with a worker that answers what
// a test wants it to.
#include "tests/cli/rig.h"
#include "tests/hardware/fake_machine.h"

namespace lockstep {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// $2 is the part, $4 the GPU, $6 its peer.
constexpr const char* kGoodWorker = R"(
echo "a library says hello"
case $2 in
  host) echo '{"host_copy": 1e10, "cpu_flops": 2e11}' ;;
  gpu) echo '{"gpus": [{"index": '$4', "copy": 1e12, "bf16_flops": 7e14}]}' ;;
  pair) echo '{"pairs": [{"first": '$4', "second": '$6', "copy": 5e10}]}' ;;
  collective)
    echo "rank $RANK of $WORLD_SIZE: P2P_DISABLE=$NCCL_P2P_DISABLE $*" >> ranks
    echo '{"collectives": [{"backend": "'$(echo $* | grep -o 'nccl\|shm\|gloo')'",
      "ranks": '$WORLD_SIZE', "bytes": 1048576, "seconds": 0.001}]}' | tr -d '\n' ;;
  check) echo '{"index": '$4', "steps": [{"what": "product", "seconds": 0.5}]}' ;;
  check-collective)
    echo "rank $RANK of $WORLD_SIZE on GPU $4, host $NCCL_HOSTID" >> ranks
    echo '{"index": '$4', "steps": [{"what": "all-reduce"}]}' ;;
esac
)";

class Measuring : public ::testing::Test {
 protected:
  explicit Measuring(int gpus = 2) : machine_(test::fake_gpus(gpus)) {}

  process::Output run(std::vector<std::string> words) const {
    auto command = rig_.command(std::move(words));
    command.environment = {{"LD_LIBRARY_PATH", (machine_.root() / "usr/lib").string()},
                           {"XDG_STATE_HOME", rig_.path("state").string()}};
    return process::run(command, test::kPatience);
  }
  // A worker that is good but for one part.
  void worker(const std::string& part, const std::string& script) const {
    rig_.worker(
        str("if [ \"$2\" = ", part, " ]; then\n", script, "\nfi\n", kGoodWorker));
  }
  std::string kept() const {
    for (const auto& file :
         std::filesystem::recursive_directory_iterator(rig_.path("state"))) {
      if (file.path().filename() == "measured.json") return file.path().string();
    }
    return "";
  }

  const test::FakeMachine machine_;
  const test::Rig rig_{kGoodWorker};
};

TEST_F(Measuring, ShowsAndKeepsWhatTheWorkerMeasured) {
  const auto output = run({"hardware", "bench"});
  EXPECT_EQ(output.end.exit_status, 0) << output.err;
  EXPECT_THAT(output.out,
              HasSubstr("memory 10.0 GB/s read and written, 200.0 GFLOP/s"));
  EXPECT_THAT(output.out, ContainsRegex("\n1 +1000.0 GB/s +n/a +n/a +700.0 TFLOP/s"));
  EXPECT_THAT(output.out, ContainsRegex("\n0 to 1 +50.0 GB/s +ok"));
  EXPECT_THAT(output.out, ContainsRegex("\nnccl +2 +1.0 MiB +1.000 ms +1.0 GB/s"));
  EXPECT_THAT(output.err, HasSubstr("lockstep: kept in " + kept()));
  const auto later = run({"hardware"});
  EXPECT_THAT(later.out, ContainsRegex("\n1 +1000.0 GB/s +n/a +n/a +700.0 TFLOP/s"));
  const auto answer = test::Json::parse(run({"hardware", "--json"}).out);
  EXPECT_EQ(answer.at("measured").at("gpus").at(1).at("uuid"), test::fake_uuid(1));
}

TEST_F(Measuring, IsNotKeptWhenNobodyWantsIt) {
  const auto output = run({"hardware", "bench", "--no-store"});
  EXPECT_EQ(output.end.exit_status, 0) << output.err;
  EXPECT_FALSE(std::filesystem::exists(rig_.path("state")));
  EXPECT_THAT(run({"hardware"}).out, Not(HasSubstr("measured")));
}

TEST_F(Measuring, APlaceThatIsMissingIsSaid) {
  auto command = rig_.command({"hardware", "bench"});
  command.environment = {{"XDG_STATE_HOME", "relative"}, {"HOME", ""}};
  const auto output = process::run(command, test::kPatience);
  EXPECT_EQ(output.end.exit_status, 2);
  EXPECT_THAT(output.err, HasSubstr("neither XDG_STATE_HOME nor HOME is set; set one, "
                                    "or add --no-store"));
}

TEST_F(Measuring, ADamagedFileIsAWarningAndNoMore) {
  ASSERT_EQ(run({"hardware", "bench"}).end.exit_status, 0);
  test::write_file(kept(), "{\"gpus\": 7");
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"hardware"},
           {"train", "recipe.yaml", "--dry-run", "parallel.device=cpu"}}) {
    const auto output = run(words);
    EXPECT_EQ(output.end.exit_status, 0) << output.err;
    EXPECT_THAT(output.err, HasSubstr("lockstep: warning: what was measured of this "
                                      "machine is not used: "));
    EXPECT_THAT(output.err, HasSubstr("measured.json is not JSON"));
  }
}

TEST_F(Measuring, AGpuThatIsSlowerThanItsEqualIsNamed) {
  worker("gpu",
         "r=7e14; [ \"$4\" = 1 ] && r=5e14\n"
         "echo '{\"gpus\": [{\"index\": '$4', \"bf16_flops\": '$r'}]}'; exit 0");
  const auto output = run({"hardware", "bench"});
  EXPECT_EQ(output.end.exit_status, 0) << output.err;
  EXPECT_THAT(output.err, HasSubstr("GPU 1 is slow: multiplying in bf16 is 29 % below "
                                    "the median of its equals (Example H200)"));
}

TEST_F(Measuring, APairThatHangsIsNamedWithTheRemedy) {
  worker("pair", "sleep 1000");
  const auto output = run({"hardware", "bench", "--time-limit", "1", "--json"});
  EXPECT_EQ(output.end.exit_status, 1);
  EXPECT_THAT(output.err, HasSubstr("GPU 0 and GPU 1: no answer within 1 s; set "
                                    "NCCL_P2P_DISABLE=1"));
  const auto answer = test::Json::parse(output.out);
  EXPECT_EQ(answer.at("measured").at("pairs").at(0).at("problem"),
            "no answer within 1 s");
  EXPECT_EQ(answer.at("broken").size(), 1U);
  EXPECT_EQ(answer.at("stored"), kept());
  // And the collective is measured without what is broken.
  EXPECT_THAT(test::read_file(rig_.path("ranks")),
              HasSubstr("rank 1 of 2: P2P_DISABLE=1 --measure collective --gpu 1"));
}

TEST_F(Measuring, APairThatDamagesDataIsNamedWithTheRemedy) {
  worker("pair",
         "echo '{\"pairs\": [{\"first\": 0, \"second\": 1, \"problem\": \"3 of 8 words "
         "arrived damaged\"}]}'; exit 0");
  const auto output = run({"hardware", "bench"});
  EXPECT_EQ(output.end.exit_status, 1);
  EXPECT_THAT(output.err,
              HasSubstr("GPU 0 and GPU 1: 3 of 8 words arrived damaged; set "
                        "NCCL_P2P_DISABLE=1"));
}

// A worker that has no memory left, or no GPU, says nothing about the link.
TEST_F(Measuring, APairThatCouldNotBeMeasuredIsNotBroken) {
  worker("pair",
         "echo 'lockstep_worker: error: measure: CUDA out of memory' >&2; exit 3");
  const auto output = run({"hardware", "bench", "--json"});
  EXPECT_EQ(output.end.exit_status, 1);
  EXPECT_THAT(output.err, HasSubstr("GPU 0 to GPU 1 could not be measured: measure: "
                                    "CUDA out of memory\n"));
  EXPECT_THAT(output.err, Not(HasSubstr("NCCL_P2P_DISABLE")));
  const auto answer = test::Json::parse(output.out);
  EXPECT_EQ(answer.at("measured").at("pairs").size(), 0U);
  EXPECT_EQ(answer.at("broken").size(), 0U);
  EXPECT_EQ(answer.at("failures").size(), 1U);
  EXPECT_THAT(test::read_file(rig_.path("ranks")),
              HasSubstr("rank 1 of 2: P2P_DISABLE= --measure collective"));
}

TEST_F(Measuring, WhatFailsIsSaidAndTheRestIsMeasured) {
  worker("gpu",
         "[ \"$4\" = 0 ] && { echo 'lockstep_worker: error: measure: gone' >&2; "
         "echo trailing >&2; exit 3; }");
  const auto output = run({"hardware", "bench"});
  EXPECT_EQ(output.end.exit_status, 1);
  EXPECT_THAT(output.err, HasSubstr("GPU 0 could not be measured: measure: gone\n"));
  EXPECT_THAT(output.out, ContainsRegex("\n1 +1000.0 GB/s"));
}

TEST_F(Measuring, AWorkerThatSaysNothingOrNonsenseIsAFailure) {
  worker("gpu", "exit 0");
  EXPECT_THAT(run({"hardware", "bench"}).err,
              HasSubstr("GPU 1 could not be measured: the worker gave no answer"));
  worker("gpu", "echo '{\"gpus\": 5}'; exit 0");
  EXPECT_THAT(
      run({"hardware", "bench"}).err,
      HasSubstr("could not be measured: lockstep_worker: gpus: 5 is not a list"));
  worker("host", "kill -SEGV $$");
  const auto output = run({"hardware", "bench"});
  EXPECT_EQ(output.end.exit_status, 3);
  EXPECT_THAT(output.err, HasSubstr("the host could not be measured: the worker ended "
                                    "with signal 11"));
}

TEST_F(Measuring, OptionsOfTheOtherActionAreRefused) {
  for (const auto& [words, sentence] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"hardware", "--quick"}, "--quick: is of `lockstep hardware bench`"},
           {{"hardware", "bench", "--from", "x"}, "only this machine can be measured"},
           {{"gpus", "test", "--free"}, "--free: all visible GPUs are tested"},
           {{"gpus", "--json"}, "--json: is of `lockstep gpus test`"},
           {{"gpus", "test", "--time-limit", "0"}, "--time-limit"},
           {{"gpus", "tset"}, "did you mean 'test'"}}) {
    const auto output = run(words);
    EXPECT_EQ(output.end.exit_status, 2);
    EXPECT_THAT(output.err, HasSubstr(sentence));
  }
}

TEST_F(Measuring, GpusThatPassEveryTest) {
  const auto output = run({"gpus", "test"});
  EXPECT_EQ(output.end.exit_status, 0) << output.err;
  EXPECT_THAT(output.out, ContainsRegex("0 +Example H200 +pass +3 in 0.5 s\n"));
  EXPECT_THAT(output.out, ContainsRegex("1 +Example H200 +pass +3 in 0.5 s\n"));
  // Two ranks on each GPU, which NCCL takes only from different hosts; then all.
  const auto ranks = test::read_file(rig_.path("ranks"));
  EXPECT_THAT(ranks, HasSubstr("rank 1 of 2 on GPU 0, host lockstep-test-1\n"));
  EXPECT_THAT(ranks, HasSubstr("rank 1 of 2 on GPU 1, host lockstep-test-1\n"));
  EXPECT_THAT(ranks, HasSubstr("rank 1 of 2 on GPU 1, host \n"));
}

TEST_F(Measuring, AGpuThatComputesWronglyFails) {
  worker("check",
         "[ \"$4\" = 1 ] && { echo '{\"index\": 1, \"steps\": [{\"what\": \"product\", "
         "\"problem\": \"7 values are wrong\"}]}'; exit 0; }");
  const auto output = run({"gpus", "test", "--json"});
  EXPECT_EQ(output.end.exit_status, 1);
  const auto answer = test::Json::parse(output.out);
  EXPECT_EQ(answer.at("passed"), false);
  EXPECT_EQ(answer.at("gpus").at(0).at("passed"), true);
  EXPECT_EQ(answer.at("gpus").at(1).at("passed"), false);
  EXPECT_THAT(run({"gpus", "test"}).out,
              ContainsRegex("1 +Example H200 +FAIL +product: 7 values are wrong\n"));
}

TEST_F(Measuring, AGpuThatHangsIsReportedAndNotWaitedFor) {
  worker("check", "[ \"$4\" = 1 ] && sleep 1000");
  const auto output = run({"gpus", "test", "--time-limit", "1"});
  EXPECT_EQ(output.end.exit_status, 1);
  EXPECT_THAT(output.out, ContainsRegex("0 +Example H200 +pass"));
  EXPECT_THAT(
      output.out,
      ContainsRegex("1 +Example H200 +FAIL +computation: no answer within 1 s\n"));
}

TEST_F(Measuring, ACollectiveThatHangsNamesTheVariable) {
  worker("check-collective", "[ -z \"$NCCL_HOSTID\" ] && sleep 1000");
  const auto output = run({"gpus", "test", "--time-limit", "1"});
  EXPECT_EQ(output.end.exit_status, 1);
  EXPECT_THAT(output.out,
              HasSubstr("all-reduce over all GPUs: no answer within 1 s; try "
                        "NCCL_P2P_DISABLE=1"));
}

TEST_F(Measuring, AGpuThatTheDriverLostFails) {
  auto state = test::fake_gpus(2);
  state["gpus"][1]["errors"] = {{"nvmlDeviceGetHandleByIndex_v2", 15}};
  state["cuda_order"] = {test::fake_uuid(0)};
  machine_.set(state);
  const auto output = run({"gpus", "test"});
  EXPECT_EQ(output.end.exit_status, 1);
  EXPECT_THAT(output.out, ContainsRegex("- +the driver's GPU 1 +FAIL +GPU is lost"));
}

class MeasuringWithoutGpus : public Measuring {
 protected:
  MeasuringWithoutGpus() : Measuring(0) {}
};

TEST_F(MeasuringWithoutGpus, MeasuresTheRestAndSaysSo) {
  const auto output = run({"hardware", "bench", "--quick"});
  EXPECT_EQ(output.end.exit_status, 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("gpu       none: the NVIDIA driver shows no GPU"));
  EXPECT_THAT(output.out, ContainsRegex("\nshm +2 +1.0 MiB"));
  EXPECT_THAT(output.out, ContainsRegex("\ngloo +2 +1.0 MiB"));
  EXPECT_THAT(test::read_file(rig_.path("ranks")),
              HasSubstr("--measure collective --backend gloo --quick"));
}

TEST_F(MeasuringWithoutGpus, ThereIsNothingToTest) {
  const auto output = run({"gpus", "test"});
  EXPECT_EQ(output.end.exit_status, 0);
  EXPECT_EQ(output.out, "");
  EXPECT_THAT(output.err, HasSubstr("no GPU: the NVIDIA driver shows no GPU"));
  EXPECT_EQ(run({"gpus", "test", "--strict"}).end.exit_status, 3);
  const auto answer = test::Json::parse(run({"gpus", "test", "--json"}).out);
  EXPECT_EQ(answer.at("gpus").size(), 0U);
  EXPECT_TRUE(answer.at("passed").is_null());
}

}  // namespace
}  // namespace lockstep
