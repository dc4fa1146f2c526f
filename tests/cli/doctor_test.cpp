#include <nlohmann/json.hpp>

#include "lockstep/cli/detail/checks.h"
#include "tests/cli/rig.h"

namespace lockstep {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

json report_of(const process::Output& output) {
  auto parsed = json::parse(output.out, nullptr, false);
  EXPECT_TRUE(parsed.is_object()) << output.out << output.err;
  return parsed;
}

json check_named(const json& report, const std::string& name) {
  for (const auto& check : report.at("checks")) {
    if (check.at("name") == name) return check;
  }
  ADD_FAILURE() << "no check '" << name << "' in " << report.dump();
  return {};
}

std::string worker_facts(const std::string& version) {
  return "echo '{\"lockstep\":\"" + version +
         "\",\"libtorch\":\"2.11.0\",\"libtorch_path\":\"/opt/"
         "torch\",\"cuda\":\"13.0\","
         "\"cudnn\":\"9.1\",\"nccl\":\"2.28.9\",\"cuda_available\":false,"
         "\"kernels\":false}'\n";
}

std::string our_version() {
  return json::parse(test::lockstep_in_process({"version", "--json"}).out)
      .at("version");
}

TEST(Doctor, AHealthyMachineEndsWithZero) {
  const test::Rig rig(worker_facts(our_version()));
  const auto output = rig.run({"doctor", "--json"});
  const auto report = report_of(output);
  EXPECT_EQ(output.end.exit_status, 0) << output.out;
  EXPECT_EQ(check_named(report, "libtorch").at("detail"), "2.11.0 in /opt/torch");
  EXPECT_EQ(check_named(report, "libtorch").at("verdict"), "ok");
  EXPECT_THAT(check_named(report, "cuda").at("detail").get<std::string>(),
              HasSubstr("NCCL 2.28.9"));
  for (const auto* name : {"lockstep", "worker", "gpu", "os", "cpu", "memory",
                           "run dir", "threads", "data"}) {
    EXPECT_FALSE(check_named(report, name).at("detail").get<std::string>().empty())
        << name;
  }
}

TEST(Doctor, AMissingWorkerFailsWithARemedy) {
  const test::Rig rig;
  std::filesystem::remove(rig.path("bin/lockstep_worker"));
  const auto output = rig.run({"doctor", "--json"});
  EXPECT_EQ(output.end.exit_status, 3);
  const auto report = report_of(output);
  EXPECT_EQ(report.at("verdict"), "fail");
  const auto check = check_named(report, "libtorch");
  EXPECT_EQ(check.at("verdict"), "fail");
  EXPECT_THAT(check.at("remedy").get<std::string>(), HasSubstr("setup.sh"));
}

TEST(Doctor, AWorkerWithoutLibtorchSaysWhy) {
  const test::Rig rig(
      "echo noise >&2; echo 'LibTorch 2.11.0 was not found' >&2; exit 3\n");
  const auto output = rig.run({"doctor", "--json"});
  EXPECT_EQ(output.end.exit_status, 3);
  EXPECT_THAT(
      check_named(report_of(output), "libtorch").at("detail").get<std::string>(),
      HasSubstr("exit status 3: LibTorch 2.11.0 was not found"));
}

TEST(Doctor, AWorkerOfAnotherVersionFails) {
  const test::Rig rig(worker_facts("0.0.7"));
  const auto output = rig.run({"doctor", "--json"});
  EXPECT_EQ(output.end.exit_status, 3);
  EXPECT_EQ(check_named(report_of(output), "worker").at("verdict"), "fail");
}

TEST(Doctor, ThePlainReportHasALineForEveryCheck) {
  const test::Rig rig(worker_facts(our_version()));
  auto command = rig.command({"doctor"});
  command.environment = {{"OMP_NUM_THREADS", "100000"}, {"NCCL_DEBUG", "INFO"}};
  const auto output = process::run(command, test::kPatience);
  EXPECT_THAT(output.out, HasSubstr("ok    libtorch  2.11.0 in /opt/torch\n"));
  EXPECT_THAT(output.out,
              HasSubstr("warn  threads   OMP_NUM_THREADS=100000, but only"));
  EXPECT_THAT(output.out, HasSubstr("-> unset OMP_NUM_THREADS"));
  EXPECT_THAT(output.out, HasSubstr("env   NCCL_DEBUG=INFO\n"));
  EXPECT_THAT(output.out, Not(HasSubstr("\x1b")));
}

TEST(Doctor, AVariableThatSetsAKnobWronglyIsAFinding) {
  const auto outcome =
      test::lockstep_in_process({"doctor", "--json"}, {{"LOCKSTEP_OPTIM_LR", "-1"}});
  EXPECT_EQ(outcome.status, 3);
  const auto check = check_named(json::parse(outcome.out), "config");
  EXPECT_EQ(check.at("verdict"), "fail");
  EXPECT_THAT(check.at("detail").get<std::string>(), HasSubstr("LOCKSTEP_OPTIM_LR"));
}

TEST(Doctor, DataMayBePackedOrNot) {
  const files::TemporaryDirectory directory;
  test::write_file(directory.path() / "train-images-idx3-ubyte.gz", "");
  test::write_file(directory.path() / "train-labels-idx1-ubyte", "");
  test::write_file(directory.path() / "t10k-images-idx3-ubyte", "");
  const auto missing = cli::check_data(directory.path());
  EXPECT_EQ(missing.verdict, cli::Verdict::warn);
  EXPECT_THAT(missing.detail, HasSubstr("t10k-labels-idx1-ubyte.gz' is missing"));
  test::write_file(directory.path() / "t10k-labels-idx1-ubyte", "");
  EXPECT_EQ(cli::check_data(directory.path()).verdict, cli::Verdict::ok);
}

TEST(Doctor, ShowsVariablesThatMatterAndNoSecrets) {
  std::ostringstream out, err;
  const cli::Context context{.out = out,
                             .err = err,
                             .environment = {{"HOME", "/x"},
                                             {"NCCL_DEBUG", "INFO"},
                                             {"LOCKSTEP_SERVER_TOKEN", "hunter2"},
                                             {"CUDA_VISIBLE_DEVICES", ""}},
                             .executable = "",
                             .command_line = ""};
  using Variable = std::pair<std::string, std::string>;
  EXPECT_THAT(
      cli::relevant_environment(context),
      ::testing::ElementsAre(Variable{"CUDA_VISIBLE_DEVICES", ""},
                             Variable{"LOCKSTEP_SERVER_TOKEN", "(set, not shown)"},
                             Variable{"NCCL_DEBUG", "INFO"}));
}

}  // namespace
}  // namespace lockstep
