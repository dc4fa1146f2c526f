// `lockstep train` with each strategy.
#include "lockstep/monitor/metrics.h"
#include "lockstep/run/events.h"
#include "tests/system/training.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

class Strategies : public testing::Test {
 protected:
  test::Path path(const std::string& name) const { return folder_.path() / name; }

  process::Output train(const std::string& name, int ranks,
                        const std::vector<std::string>& more) const {
    return test::run(
        test::train_command(path(name), ranks, test::joined({"train.steps=12"}, more)));
  }

  std::vector<double> losses(const std::string& name) const {
    std::vector<double> list;
    for (const auto& line : monitor::read_metrics(path(name) / "metrics.jsonl")) {
      list.push_back(line.loss);
    }
    return list;
  }

  files::TemporaryDirectory folder_;
};

TEST_F(Strategies, AllComeToTheSameLosses) {
  const std::vector<std::string> often{"train.log_every=1", "comm.deterministic=true"};
  EXPECT_EQ(train("single", 1, often).end.shell_status(), 0);
  const auto ddp = train("ddp", 2, often);
  EXPECT_EQ(ddp.end.shell_status(), 0) << ddp.err;
  const auto threads =
      train("threads", 2, test::joined(often, {"parallel.strategy=data_parallel"}));
  EXPECT_EQ(threads.end.shell_status(), 0) << threads.err;
  EXPECT_EQ(losses("ddp"), losses("threads"));  // to the last bit
  const auto single = losses("single");
  ASSERT_GE(single.size(), 12U);
  ASSERT_EQ(losses("ddp").size(), single.size());
  for (std::size_t i = 0; i < single.size(); ++i) {
    // The same sums in another order, through twelve updates.
    EXPECT_NEAR(losses("ddp")[i], single[i], 1e-4 * single[i]) << i;
  }
}

TEST_F(Strategies, DataParallelIsOneProcessThatReportsEachDevice) {
  const auto output = train("threads", 3, {"parallel.strategy=data_parallel"});
  EXPECT_EQ(output.end.shell_status(), 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("rank 0"));
  EXPECT_THAT(output.out, HasSubstr("rank 2"));
  EXPECT_THAT(output.out, HasSubstr("reserved, of"));
  EXPECT_TRUE(test::beat_of(path("threads"), 0).has_value());
  EXPECT_FALSE(test::beat_of(path("threads"), 1).has_value());  // one for the launcher
  int memory = 0;
  for (const auto& event : run::last_events(path("threads") / "events.jsonl", 100)) {
    memory += event.kind == "memory" ? 1 : 0;
  }
  EXPECT_EQ(memory, 3);
}

TEST_F(Strategies, DataParallelStopsAtASignalAsOne) {
  test::Job job(test::train_command(
      path("stopped"), 2, {test::kEndless, "parallel.strategy=data_parallel"}));
  EXPECT_TRUE(test::trains(path("stopped"), 1)) << job.text();
  EXPECT_EQ(::kill(test::beat_of(path("stopped"), 0)->pid, SIGTERM), 0);
  const auto end = job.wait_for(test::kJobPatience);
  ASSERT_TRUE(end.has_value()) << job.text();
  EXPECT_TRUE(job.is_gone());
  EXPECT_THAT(job.text(), HasSubstr("stopped by SIGTERM"));
}

TEST_F(Strategies, SeveralProcessesOfDataParallelAreRefused) {
  const auto prepared =
      test::prepare_run(path("r"), 2, {"parallel.strategy=data_parallel"});
  EXPECT_THAT(prepared.err, HasSubstr("--nproc-per-node 1"));
  const auto output = test::run(test::launch_worker({"--nproc-per-node", "2"},
                                                    {"--run-dir", path("r").string()}));
  EXPECT_NE(output.end.shell_status(), 0);
  EXPECT_THAT(output.err,
              HasSubstr("data_parallel is one process, but 2 were started"));
}

}  // namespace
}  // namespace lockstep
