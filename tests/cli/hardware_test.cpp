#include "lockstep/cli/detail/hardware_text.h"
#include "tests/cli/rig.h"
#include "tests/hardware/fake_machine.h"

namespace lockstep {
namespace {

using test::fake_gpus;
using test::FakeMachine;
using test::lockstep_in_process;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// The program on this machine, with stand-ins for NVIDIA's libraries.
process::Output on(const FakeMachine& machine, std::vector<std::string> words,
                   std::vector<std::pair<std::string, std::string>> environment = {}) {
  words.insert(words.begin(), test::binary("lockstep").string());
  environment.emplace_back("LD_LIBRARY_PATH", (machine.root() / "usr/lib").string());
  return test::run(words, environment);
}

test::Json four_gpus() {
  auto state = fake_gpus(4);
  state["topology"] = {
      {0, 10, 50, 50}, {10, 0, 50, 50}, {50, 50, 0, 10}, {50, 50, 10, 0}};
  state["gpus"][0]["memory"]["used"] = 30'000'000'000;
  state["gpus"][0]["utilization"] = {97, 50};
  state["gpus"][0]["processes"] = {{{"pid", 999999}, {"memory", 30'000'000'000}}};
  return state;
}

TEST(HardwareCommand, WithoutAGpuSaysSoInWords) {
  const files::TemporaryDirectory place;
  test::write_file(place.path() / "node.json",
                   "{\"physical_cores\": 2, \"gpu_note\": \"no NVIDIA driver\"}");
  const auto outcome = lockstep_in_process(
      {"hardware", "--from", (place.path() / "node.json").string()});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("gpu       none: no NVIDIA driver\n"));
  EXPECT_THAT(outcome.out, HasSubstr("plan parallel.device = cpu"));
}

TEST(HardwareCommand, OfThisMachineHasCpuMemoryDiskAndSettings) {
  const auto outcome = lockstep_in_process({"hardware"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  for (const auto* about :
       {"machine ", "\ncpu ", "\nmemory ", "\ndisk ", "\nnetwork "}) {
    EXPECT_THAT(outcome.out, HasSubstr(about));
  }
  EXPECT_THAT(outcome.out, HasSubstr("plan parallel.threads = "));
}

TEST(HardwareCommand, ShowsGpusTheirWorriesAndLinks) {
  auto state = four_gpus();
  state["gpus"][1]["throttle"] = 0x20;
  state["gpus"][2]["remapped"] = {0, 1, 0, 1};
  state["gpus"][3].erase("power_mw");
  state["peer_status"] = 1;
  const FakeMachine machine(state);
  const auto output = on(machine, {"hardware"});
  ASSERT_TRUE(output.end.ok()) << output.err;
  EXPECT_THAT(output.out, HasSubstr("driver    580.82.07, CUDA up to 13.0"));
  EXPECT_THAT(output.out,
              ContainsRegex("0 +Example H200 +46.1 GiB of 74.5 GiB +9.0 +132 "
                            "+50.0 MiB +97 % +35 C +76/700 W +1980 MHz +gen "
                            "5 x16 +n/a +1"));
  EXPECT_THAT(output.out, ContainsRegex("\n3 +Example H200.* n/a/700 W"));
  EXPECT_THAT(output.out,
              HasSubstr("GPU 0: process 999999 (n/a) of n/a uses 27.9 GiB"));
  EXPECT_THAT(output.out, HasSubstr("GPU 1: slowed down: temperature"));
  EXPECT_THAT(output.out, HasSubstr("GPU 2: a failed row of memory could not be"));
  EXPECT_THAT(output.out, ContainsRegex("GPU 0 +- +switch +system +system"));
  EXPECT_THAT(output.out, HasSubstr("6 of 6 pairs cannot read"));
  EXPECT_THAT(output.out, HasSubstr("plan parallel.ranks = 4"));
}

TEST(HardwareCommand, ItsJsonIsAFileToReadBack) {
  const FakeMachine machine(four_gpus());
  const auto made = on(machine, {"hardware", "--json"});
  ASSERT_TRUE(made.end.ok()) << made.err;
  machine.file("node.json", made.out);
  const auto file = (machine.root() / "node.json").string();
  EXPECT_EQ(lockstep_in_process({"hardware", "--from", file, "--json"}).out, made.out);
  EXPECT_THAT(lockstep_in_process({"hardware", "--from", file}).out,
              HasSubstr("plan parallel.ranks = 4"));
}

TEST(HardwareCommand, NamesOfDevicesDoNotCommandTheTerminal) {
  hardware::Machine machine;
  machine.hostname = "evil\x1b[2J";
  const files::TemporaryDirectory place;
  test::write_file(place.path() / "node.json",
                   "{\"physical_cores\": 2, \"hostname\": \"evil\\u001b[2J\"}");
  const auto outcome = lockstep_in_process(
      {"hardware", "--from", (place.path() / "node.json").string()});
  EXPECT_THAT(outcome.out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(cli::hardware_text(machine), HasSubstr("\x1b"));  // printing guards
}

TEST(GpusCommand, ListsThem) {
  const FakeMachine machine(four_gpus());
  const auto output = on(machine, {"gpus"});
  EXPECT_TRUE(output.end.ok()) << output.err;
  EXPECT_EQ(std::count(output.out.begin(), output.out.end(), '\n'), 5);
}

TEST(GpusCommand, ChoosesFreeOnesThatAreWellLinked) {
  const FakeMachine machine(four_gpus());
  const auto two =
      on(machine, {"gpus", "--free", "--min-memory", "20GB", "--count", "2"});
  EXPECT_EQ(two.out, "2,3\n");  // 1 is free, too, but its neighbour is not
  EXPECT_THAT(two.err, IsEmpty());
  EXPECT_EQ(on(machine, {"gpus", "--free", "--count", "2", "--export"}).out,
            "export CUDA_VISIBLE_DEVICES=2,3\n");
  EXPECT_EQ(on(machine, {"gpus", "--free", "--count=1", "--uuid"}).out,
            test::fake_uuid(1) + "\n");
}

TEST(GpusCommand, FewerThanAskedForIsAWarningOrAStatus) {
  const FakeMachine machine(four_gpus());
  const auto lenient = on(machine, {"gpus", "--free", "--count", "4"});
  EXPECT_EQ(lenient.end.exit_status, 0);
  EXPECT_EQ(lenient.out, "1,2,3\n");
  EXPECT_THAT(lenient.err, HasSubstr("requested 4 GPUs, found 3"));
  EXPECT_THAT(lenient.err, HasSubstr("GPU 0: 1 process on it"));
  const auto strict = on(machine, {"gpus", "--free", "--count", "4", "--strict"});
  EXPECT_EQ(strict.end.exit_status, 3);
  EXPECT_EQ(strict.out, "");  // a shell that evaluates it must not go on with fewer
}

TEST(GpusCommand, NoneIsAnErrorAndExportsNothing) {
  auto state = fake_gpus(2);
  for (auto& gpu : state["gpus"]) gpu["processes"] = {{{"pid", 999999}, {"memory", 9}}};
  const FakeMachine machine(state), empty(fake_gpus(0));
  for (const auto* place : {&machine, &empty}) {
    for (const auto& words :
         {std::vector<std::string>{"gpus", "--free", "--count", "2", "--export"},
          {"gpus", "--free"},
          {"gpus", "--min-memory", "900GB", "--uuid"}}) {
      const auto output = on(*place, words);
      EXPECT_EQ(output.end.exit_status, 3) << output.err;
      EXPECT_EQ(output.out, "");
      EXPECT_THAT(output.err, HasSubstr(", found 0"));
    }
  }
}

TEST(GpusCommand, ChoosesAmongTheVisibleOnesAndNamesThemForAnyProgram) {
  auto state = four_gpus();
  state["cuda_order"] = {test::fake_uuid(2), test::fake_uuid(0)};
  const FakeMachine machine(state);
  EXPECT_EQ(on(machine, {"gpus", "--free"}, {{"CUDA_VISIBLE_DEVICES", "2,0"}}).out,
            test::fake_uuid(2) + "\n");
}

// CUDA would count the last of them as 2.
TEST(GpusCommand, ALostGpuIsNamedAndTheOthersGoByUuid) {
  auto state = fake_gpus(4);
  state["gpus"][1]["errors"] = {{"nvmlDeviceGetHandleByIndex_v2", 15}};
  state["cuda_order"] = {test::fake_uuid(0), test::fake_uuid(2), test::fake_uuid(3)};
  state["gpus"][0]["memory"]["used"] = 30'000'000'000;
  state["gpus"][2]["memory"]["used"] = 30'000'000'000;
  const FakeMachine machine(state);
  EXPECT_EQ(on(machine, {"gpus", "--count", "1"}).out, test::fake_uuid(3) + "\n");
  const auto lost = HasSubstr("the driver's GPU 1 cannot be used: GPU is lost\n");
  EXPECT_THAT(on(machine, {"gpus"}).err, lost);
  EXPECT_THAT(on(machine, {"gpus", "--count", "4"}).err, lost);
}

// A T4 alone looks like one of equals; CUDA puts the faster one first all the same.
TEST(GpusCommand, AHiddenGpuOfAnotherModelDoesNotMisleadTheNumber) {
  auto state = fake_gpus(2);
  state["gpus"][0]["name"] = "Example T4";
  state["cuda_order"] = {test::fake_uuid(0)};
  const FakeMachine machine(state);
  EXPECT_EQ(on(machine, {"gpus", "--count", "1"}, {{"CUDA_VISIBLE_DEVICES", "1"}}).out,
            test::fake_uuid(0) + "\n");
}

TEST(GpusCommand, OfAFileWithoutAnyAlwaysHasAReason) {
  const files::TemporaryDirectory place;
  const auto file = (place.path() / "node.json").string();
  test::write_file(file, "{\"physical_cores\": 2}");
  EXPECT_EQ(lockstep_in_process({"gpus", "--from", file}).err,
            "no GPU: none was found\n");
  test::write_file(file, "{}");
  EXPECT_EQ(lockstep_in_process({"gpus", "--from", file}).status, 2);
  EXPECT_EQ(
      lockstep_in_process({"plan", "--model", "gpt2-124m", "--hardware", file}).status,
      2);
}

TEST(HardwareCommand, ListsNoVariableThatIsSet) {
  const FakeMachine machine(fake_gpus(2));
  const auto settings = [&](const char* threads) {
    return on(machine, {"hardware"}, {{"OMP_NUM_THREADS", threads}}).out;
  };
  EXPECT_THAT(settings("3"), Not(HasSubstr("plan OMP_NUM_THREADS=")));
  EXPECT_THAT(settings("3"), HasSubstr("plan PYTORCH_ALLOC_CONF="));
}

TEST(GpusCommand, WithoutAGpuSaysSo) {
  const FakeMachine machine(fake_gpus(0));
  const auto list = on(machine, {"gpus"});
  EXPECT_EQ(list.end.exit_status, 0);
  EXPECT_EQ(list.out, "");
  EXPECT_THAT(list.err, HasSubstr("no GPU: the NVIDIA driver shows no GPU"));
  const auto choice = on(machine, {"gpus", "--free", "--strict"});
  EXPECT_EQ(choice.out, "");
  EXPECT_EQ(choice.end.exit_status, 3);
}

TEST(GpusCommand, RefusesWhatIsNoAmount) {
  const auto outcome = lockstep_in_process({"gpus", "--min-memory", "20G"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--min-memory: '20G' is not an amount of memory"));
  EXPECT_EQ(lockstep_in_process({"gpus", "--count", "0"}).status, 2);
}

}  // namespace
}  // namespace lockstep
