// Two nodes: network namespaces of this machine, joined by a cable that can be cut.
#include <signal.h>

#include "tests/system/training.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

class Nodes : public testing::Test {
 protected:
  // Nothing of ours runs here, so what fails is a privilege or a feature of the kernel
  // that this place does not have: a chroot, for one, makes namespaces and can not
  // enter them.
  void SetUp() override {
    std::vector<std::vector<std::string>> steps{
        {"netns", "add", name(0)},
        {"netns", "add", name(1)},
        {"netns", "exec", name(0), "true"},
        {"link", "add", cable(0), "netns", name(0), "type", "veth", "peer", "name",
         cable(1), "netns", name(1)}};
    for (int node = 0; node < 2; ++node) {
      steps.push_back({"-n", name(node), "address", "add", address(node) + "/24", "dev",
                       cable(node)});
      steps.push_back({"-n", name(node), "link", "set", "lo", "up"});
      steps.push_back({"-n", name(node), "link", "set", cable(node), "up"});
    }
    for (const auto& step : steps) {
      const auto output = ip(step);
      if (output.end.ok()) continue;
      GTEST_SKIP() << "no network namespaces here: ip " << text::join(step, " ") << ": "
                   << output.err;
    }
  }

  void TearDown() override {
    for (int node = 0; node < 2; ++node) ip({"netns", "delete", name(node)});
  }

  // Names are of the whole machine, where other tests may run; interfaces have 15
  // letters at most.
  static std::string name(int node) { return str("ls", ::getpid(), "n", node); }
  static std::string cable(int node) { return str("ls", ::getpid(), "v", node); }
  static std::string address(int node) { return node == 0 ? "10.99.0.1" : "10.99.0.2"; }

  static process::Output ip(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "ip");
    return test::run(arguments);
  }

  static void check(const std::vector<std::string>& arguments) {
    const auto output = ip(arguments);
    ASSERT_TRUE(output.end.ok()) << text::join(arguments, " ") << ": " << output.err;
  }

  // What a person types on each machine: the same line.
  std::unique_ptr<test::Job> start(
      int node, const std::vector<std::string>& arguments,
      std::vector<std::pair<std::string, std::string>> environment = {},
      const std::string& restarts = "0") const {
    const auto command = test::launch_worker(
        {"--nnodes", "2", "--nproc-per-node", "1", "--master-addr", address(0),
         "--master-port", "29555", "--max-restarts", restarts},
        arguments);
    return start_on(node, command, std::move(environment));
  }

  static std::unique_ptr<test::Job> start_on(
      int node, const std::vector<std::string>& command,
      std::vector<std::pair<std::string, std::string>> environment) {
    return std::make_unique<test::Job>(
        test::joined({"ip", "netns", "exec", name(node)}, command),
        std::move(environment));
  }

  // The same worker under torchrun, which goes on with the nodes that are there.
  std::unique_ptr<test::Job> start_elastic(int node) const {
    const std::string quick =
        "last_call_timeout=2,keep_alive_interval=1,keep_alive_max_attempt=5,";
    return start_on(
        node,
        {test::torchrun(),   "--no-python",
         "--nnodes",         "1:2",
         "--nproc-per-node", "1",
         "--max-restarts",   "5",
         "--local-addr",     address(node),
         "--rdzv-backend",   "c10d",
         "--rdzv-endpoint",  address(0) + ":29400",
         "--rdzv-id",        "elastic",
         "--rdzv-conf",      quick + (node == 0 ? "is_host=true" : "is_host=false"),
         test::worker(),     "--run-dir",
         run_.string()},
        // Without it, torchrun 2.11 waits for ever for a node that comes back: the
        // address of its store is published in the first round only.
        {{"TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"}});
  }

  files::TemporaryDirectory folder_;  // on a disk that both nodes share
  const test::Path run_ = folder_.path() / "run";
};

TEST_F(Nodes, MeetWithNothingButTheMastersAddressAndPort) {
  const auto first = start(0, {"--selftest"});
  const auto second = start(1, {"--selftest"});
  for (const auto& job : {&first, &second}) {
    const auto end = (*job)->wait_for(test::kJobPatience);
    ASSERT_TRUE(end.has_value()) << (*job)->text();
    EXPECT_EQ(end->shell_status(), 0) << (*job)->text();
    EXPECT_TRUE((*job)->is_gone());
  }
  EXPECT_THAT(first->text(), HasSubstr("2 ranks agree"));
}

TEST_F(Nodes, ANodeThatNeverComesIsNamed) {
  const auto job = start(0, {"--selftest"}, {{"LOCKSTEP_COMM_JOIN_TIMEOUT", "2s"}});
  const auto end = job->wait_for(test::kJobPatience);
  ASSERT_TRUE(end.has_value()) << job->text();
  EXPECT_NE(end->shell_status(), 0);
  EXPECT_THAT(job->text(), HasSubstr("rank 1 (node 1) did not join within 2s"));
  EXPECT_TRUE(job->is_gone());
}

TEST_F(Nodes, AMasterThatNeverComesIsNamed) {
  const auto job = start(1, {"--selftest"}, {{"LOCKSTEP_COMM_JOIN_TIMEOUT", "2s"}});
  const auto end = job->wait_for(test::kJobPatience);
  ASSERT_TRUE(end.has_value()) << job->text();
  EXPECT_NE(end->shell_status(), 0);
  EXPECT_THAT(job->text(), HasSubstr("rank 0 (node 0) at 10.99.0.1:29555"));
  EXPECT_TRUE(job->is_gone());
}

TEST_F(Nodes, ACutCableEndsBothSidesWithAReport) {
  test::prepare_run(run_, 2, {test::kEndless, "comm.timeout=3s"});
  const auto first = start(0, {"--run-dir", run_.string()});
  const auto second = start(1, {"--run-dir", run_.string()});
  ASSERT_TRUE(test::trains(run_, 2)) << first->text() << second->text();
  check({"-n", name(0), "link", "set", cable(0), "down"});
  for (const auto& job : {&first, &second}) {
    const auto end = (*job)->wait_for(test::kJobPatience);
    ASSERT_TRUE(end.has_value()) << (*job)->text();
    EXPECT_NE(end->shell_status(), 0);
    EXPECT_THAT((*job)->text(), HasSubstr("comm: "));
    EXPECT_TRUE((*job)->is_gone());
  }
}

// Launchers do not talk to each other: ranks that lose their peers fail, and are
// started again by their own launcher.
TEST_F(Nodes, BothLaunchersRestartWhenARankOfOneDies) {
  test::prepare_run(run_, 2, {"train.steps=80"});
  const std::vector<std::string> arguments{"--run-dir", run_.string()};
  const auto first = start(0, arguments, {}, "1");
  const auto second = start(1, arguments, {}, "1");
  ASSERT_TRUE(test::trains(run_, 2)) << first->text() << second->text();
  const auto victim = test::beat_of(run_, 1)->pid;
  ASSERT_EQ(second->rank(1), victim);
  ::kill(victim, SIGKILL);
  for (const auto& job : {&first, &second}) {
    const auto end = (*job)->wait_for(test::kJobPatience);
    ASSERT_TRUE(end.has_value()) << (*job)->text();
    EXPECT_EQ(end->shell_status(), 0) << (*job)->text();
    EXPECT_THAT((*job)->text(), HasSubstr("all ranks restart in 1s (1 of 1)"));
    EXPECT_TRUE((*job)->is_gone());
  }
  EXPECT_THAT(first->text(), HasSubstr("(comm): "));
  EXPECT_THAT(second->text(), HasSubstr("ended by signal 9 (SIGKILL)"));
  EXPECT_EQ(test::record_of(run_).state, run::RunStatus::done);
}

// Two nodes, one, and two again: ranks whose peers have gone end with Fault::comm, and
// torchrun starts them anew among those that are there.
TEST_F(Nodes, TrainingFollowsTorchrunFromTwoNodesToOneAndBack) {
  LOCKSTEP_NEEDS_ORACLE();
  test::prepare_run(run_, 2,
                    {test::kEndless, "comm.timeout=10s", "comm.join_timeout=15s"});
  const auto first = start_elastic(0);
  const auto second = start_elastic(1);
  ASSERT_TRUE(test::trains(run_, 2)) << first->text() << second->text();
  for (const auto pid : second->all()) ::kill(pid, SIGKILL);
  ASSERT_TRUE(test::trains(run_, 1)) << first->text();
  const auto again = start_elastic(1);
  ASSERT_TRUE(test::trains(run_, 2)) << first->text() << again->text();
  for (const auto& job : {&first, &again}) {
    ::kill((*job)->pid(), SIGTERM);
    EXPECT_TRUE((*job)->wait_for(test::kPatience).has_value());
    EXPECT_TRUE((*job)->is_gone());
  }
  EXPECT_TRUE(std::filesystem::exists(run_ / "model.safetensors"));
}

}  // namespace
}  // namespace lockstep
