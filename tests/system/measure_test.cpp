// hardware bench and gpus test with the real worker.
#include <nlohmann/json.hpp>

#include "tests/system/command.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

process::Output measure(std::vector<std::string> words, const test::Path& state) {
  words.insert(words.begin(), test::binary("lockstep").string());
  return process::run({.arguments = std::move(words),
                       .environment = {{"XDG_STATE_HOME", state.string()}},
                       .directory = {}},
                      std::chrono::minutes(4));
}

TEST(MeasuredMachine, HasRatesOfItsHostAndOfItsCollectives) {
  const files::TemporaryDirectory state;
  const auto output = measure({"hardware", "bench", "--quick", "--json"}, state.path());
  EXPECT_EQ(output.end.shell_status(), 0) << output.err;
  const auto json = nlohmann::json::parse(output.out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << output.out;
  const auto& measured = json.at("measured");
  EXPECT_GT(measured.at("host_copy").get<double>(), 1e8);  // 100 MB/s: any machine
  EXPECT_GT(measured.at("cpu_flops").get<double>(), 1e8);
  ASSERT_FALSE(measured.at("collectives").empty());
  for (const auto& one : measured.at("collectives")) {
    EXPECT_GE(one.at("ranks").get<int>(), 2);
    EXPECT_GT(one.at("seconds").get<double>(), 0);
  }
  EXPECT_EQ(test::read_file(json.at("stored").get<std::string>()).front(), '{');
  EXPECT_THAT(measure({"hardware"}, state.path()).out, HasSubstr("\nmeasured  "));
}

TEST(MeasuredMachine, WithoutAGpuThereIsNoneToTest) {
  if (std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "there is a GPU";
  const auto output = measure({"gpus", "test"}, "/");
  EXPECT_EQ(output.end.shell_status(), 0);
  EXPECT_THAT(output.err, HasSubstr("no GPU: "));
}

TEST(MeasuredMachine, AWorkerOfNoPartOrNoGpuSaysSo) {
  const auto worker = test::binary("lockstep_worker").string();
  for (const auto& [words, sentence] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"nonsense"}, "there is no part 'nonsense'"},
           {{"gpu", "--gpu", "99"}, "there is no GPU 99"},
           {{"check", "--gpu", "-1"}, "--gpu '-1' is not a number"},
           {{"collective", "--backend", "magic"}, "--backend 'magic' is none"},
           {{"host", "--rapid"}, "'--rapid' is no option"}}) {
    auto command = words;
    command.insert(command.begin(), {worker, "--measure"});
    const auto output = test::run(command);
    EXPECT_NE(output.end.shell_status(), 0);
    EXPECT_THAT(output.err, HasSubstr(sentence));
  }
}

TEST(MeasuredMachineGpu, EveryGpuPassesItsTest) {
  if (!std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "no GPU";
  const auto output = measure({"gpus", "test", "--json"}, "/");
  EXPECT_EQ(output.end.shell_status(), 0) << output.out << output.err;
  const auto json = nlohmann::json::parse(output.out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << output.out;
  for (const auto& gpu : json.at("gpus")) {
    EXPECT_TRUE(gpu.at("passed").get<bool>());
    EXPECT_GE(gpu.at("steps").size(), 6U) << "five of computing, a sum of two ranks";
  }
}

TEST(MeasuredMachineGpu, HasRates) {
  if (!std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "no GPU";
  const files::TemporaryDirectory state;
  const auto output = measure({"hardware", "bench", "--quick", "--json"}, state.path());
  EXPECT_EQ(output.end.shell_status(), 0) << output.err;
  const auto json = nlohmann::json::parse(output.out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << output.out;
  ASSERT_FALSE(json.at("measured").at("gpus").empty());
  for (const auto& gpu : json.at("measured").at("gpus")) {
    EXPECT_GT(gpu.at("copy").get<double>(), gpu.at("from_host").get<double>());
    EXPECT_GT(gpu.at("bf16_flops").get<double>(), gpu.at("fp32_flops").get<double>());
  }
}

// Where there is one GPU: what is sent to itself arrives.
TEST(MeasuredMachineGpu, SendsToItself) {
  if (!std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "no GPU";
  const auto output = test::run({test::binary("lockstep_worker").string(), "--measure",
                                 "pair", "--gpu", "0", "--peer", "0", "--quick"});
  EXPECT_EQ(output.end.shell_status(), 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("\"problem\": \"\""));
}

}  // namespace
}  // namespace lockstep
