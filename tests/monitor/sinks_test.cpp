// The contract of monitor::Sink, which every sink passes, and what each writes.
#include <cmath>
#include <limits>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "lockstep/base/leftovers.h"
#include "lockstep/base/text.h"
#include "lockstep/monitor/detail/crc32c.h"
#include "lockstep/monitor/detail/text_server.h"
#include "lockstep/monitor/sink.h"
#include "tests/hardware/fake_machine.h"
#include "tests/run/run_rig.h"
#include "tests/support/oracle.h"

namespace lockstep {
namespace {

using monitor::make_sink;
using monitor::Split;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<hardware::Gpu>& two_gpus() {
  static const auto kGpus = [] {
    const test::FakeMachine machine(test::fake_gpus(2));
    return hardware::detect(machine.root()).gpus;
  }();
  return kGpus;
}

monitor::SystemSample some_sample(std::int64_t step) {
  return {.time = 1.7e9 + static_cast<double>(step),
          .step = step,
          .readings = {{"gpu_power_watts", 0, 300.5},
                       {"gpu_power_watts", 1, 310},
                       {"gpu_memory_used_bytes", 1, 3.0 * (1LL << 30)},
                       {"gpu_energy_joules", 0, 5000},
                       {"cpu_utilization_ratio", std::nullopt, 0.25}},
          .gpus = {}};
}

// The same story for every sink: ten steps, an evaluation, samples, the end.
void tell_story(monitor::Sink& sink) {
  for (int step = 1; step <= 10; ++step) {
    sink.metrics({.step = step,
                  .split = Split::train,
                  .loss = 1.0 / step,
                  .more = {{"lr", 0.001}, {"epoch", 0.5}, {"backend", "modelled"}}});
    sink.live(some_sample(step));
    if (step % 5 == 0) sink.system(some_sample(step));
  }
  sink.metrics({.step = 10,
                .split = Split::eval,
                .loss = 0.125,
                .more = {{"accuracy", 0.75}, {"hits, of \"five\"", std::int64_t{5}}}});
  sink.finish({.exit = 0, .steps = 10});
}

class SinkContract : public ::testing::TestWithParam<config::Sink> {
 protected:
  std::unique_ptr<monitor::Sink> make() {
    return make_sink(GetParam(),
                     {.run = rig_.run, .config = config_, .gpus = two_gpus()});
  }
  test::RunRig rig_;
  config::MonitorConfig config_;
};

TEST_P(SinkContract, TellsAWholeRun) {
  const auto sink = make();
  ASSERT_NE(sink, nullptr);
  EXPECT_EQ(sink->name(), name_of(GetParam()));
  tell_story(*sink);
}

TEST_P(SinkContract, TakesNumbersThatAreNone) {
  const auto sink = make();
  for (const double loss : {std::nan(""), std::numeric_limits<double>::infinity(),
                            -std::numeric_limits<double>::infinity()}) {
    sink->metrics({.step = 1, .loss = loss, .more = {{"x", loss}}});
  }
  sink->live(some_sample(1));
  sink->finish({.exit = 6, .steps = 1});
}

TEST_P(SinkContract, ARestartedRunGoesOn) {
  tell_story(*make());
  tell_story(*make());
}

TEST_P(SinkContract, AFullDiskIsAnErrorAndNothingElse) {
  EXPECT_EQ(test::in_child([&] {
              const auto sink = make();
              test::limit_file_size(64);
              const auto error = test::error_of([&] {
                for (int i = 0; i < 1000; ++i) tell_story(*sink);
              });
              return error && error->fault() == Fault::io ? 0 : 1;
            }),
            0);
}

TEST_P(SinkContract, ADirectoryThatIsGoneIsAnError) {
  EXPECT_EQ(test::in_child([&] {
              std::filesystem::remove_all(rig_.run.path());
              test::write_file(rig_.run.path(), "a file");
              try {
                make();
              } catch (const std::exception&) {
                return 0;
              }
              return 1;
            }),
            0);
}

INSTANTIATE_TEST_SUITE_P(Sinks, SinkContract,
                         ::testing::Values(config::Sink::jsonl, config::Sink::csv,
                                           config::Sink::tensorboard,
                                           config::Sink::prometheus,
                                           config::Sink::wandb, config::Sink::mlflow),
                         [](const auto& sink) {
                           return std::string(name_of(sink.param));
                         });

class Sinks : public ::testing::Test {
 protected:
  void tell(config::Sink kind) {
    tell_story(
        *make_sink(kind, {.run = rig_.run, .config = config_, .gpus = two_gpus()}));
  }
  std::string file(const std::string& name) const {
    return test::read_file(rig_.run.path() / name);
  }
  test::Path folder(const std::string& name) const { return rig_.run.path() / name; }

  test::RunRig rig_;
  config::MonitorConfig config_;
};

TEST_F(Sinks, JsonlHasALineForEachReport) {
  tell(config::Sink::jsonl);
  EXPECT_EQ(monitor::read_metrics(rig_.run.metrics()).size(), 11U);
  EXPECT_EQ(file("system.jsonl"),
            "{\"time\":1700000005.0,\"step\":5,\"gpu_power_watts.0\":300.5,"
            "\"gpu_power_watts.1\":310.0,\"gpu_memory_used_bytes.1\":3221225472.0,"
            "\"gpu_energy_joules.0\":5000.0,\"cpu_utilization_ratio\":0.25}\n"
            "{\"time\":1700000010.0,\"step\":10,\"gpu_power_watts.0\":300.5,"
            "\"gpu_power_watts.1\":310.0,\"gpu_memory_used_bytes.1\":3221225472.0,"
            "\"gpu_energy_joules.0\":5000.0,\"cpu_utilization_ratio\":0.25}\n");
}

TEST_F(Sinks, CsvHasARowForEachNumber) {
  tell(config::Sink::csv);
  tell(config::Sink::csv);  // a restart: no second header
  const auto rows = text::split(text::trim(file("metrics.csv")), '\n');
  EXPECT_EQ(rows[0], "time,step,split,metric,gpu,value,attempt");
  EXPECT_EQ(rows.size(), 1 + 2 * (10U * 3 + 3 + 2 * 5));
  EXPECT_THAT(rows[1], ::testing::MatchesRegex("[0-9.e+]+,1,train,loss,,1,1"));
  EXPECT_THAT(file("metrics.csv"),
              HasSubstr(",10,eval,\"hits, of \"\"five\"\"\",,5,1\n"));
  EXPECT_THAT(file("metrics.csv"),
              HasSubstr("1700000005,5,system,gpu_power_watts,1,310,1"));
  EXPECT_THAT(file("metrics.csv"), Not(HasSubstr("backend")));
}

TEST_F(Sinks, CsvOfAnOlderVersionKeepsItsColumns) {
  test::write_file(folder("metrics.csv"), "time,step,split,metric,gpu,value\n");
  tell(config::Sink::csv);
  EXPECT_THAT(file("metrics.csv"),
              HasSubstr("1700000005,5,system,gpu_power_watts,1,310\n"));
}

TEST_F(Sinks, PrometheusHasTheNewestNumbersOnce) {
  config_.dcgm_names = true;
  tell(config::Sink::prometheus);
  const auto text = file("metrics.prom");
  EXPECT_THAT(text, HasSubstr("# HELP lockstep_loss Mean loss"));
  EXPECT_THAT(text, HasSubstr("lockstep_loss{run=\"0001\",split=\"train\"} 0.1\n"));
  EXPECT_THAT(text, HasSubstr("lockstep_loss{run=\"0001\",split=\"eval\"} 0.125\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE lockstep_step_total counter\n"
                              "lockstep_step_total{run=\"0001\"} 10\n"));
  EXPECT_THAT(text,
              HasSubstr("lockstep_gpu_power_watts{run=\"0001\",gpu=\"1\",uuid=\"" +
                        test::fake_uuid(1) + "\"} 310\n"));
  EXPECT_THAT(text,
              HasSubstr("DCGM_FI_DEV_FB_USED{gpu=\"1\",UUID=\"" + test::fake_uuid(1) +
                        "\",pci_bus_id=\"0000:1b:00.0\","
                        "device=\"nvidia1\",modelName=\"Example H200\""));
  EXPECT_THAT(text, ::testing::ContainsRegex("DCGM_FI_DEV_FB_USED.* 3072\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex(
                        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION.* 5000000\n"));
  EXPECT_EQ(test::names_in(rig_.run.path()),
            (std::vector<std::string>{"config.yaml", "logs", "metrics.prom",
                                      "plan.json", "run.json"}));
}

// A panel for runs of any task.
TEST_F(Sinks, PrometheusHasTheMetricThatCountsUnderOneName) {
  tell_story(*make_sink(config::Sink::prometheus, {.run = rig_.run,
                                                   .config = config_,
                                                   .gpus = two_gpus(),
                                                   .primary = {"accuracy", true}}));
  EXPECT_THAT(file("metrics.prom"),
              HasSubstr("lockstep_primary{run=\"0001\",split=\"eval\","
                        "metric=\"accuracy\"} 0.75\n"));
  tell(config::Sink::prometheus);
  EXPECT_THAT(file("metrics.prom"),
              HasSubstr("lockstep_primary{run=\"0001\",split=\"eval\","
                        "metric=\"loss\"} 0.125\n"));
}

// Tags, which a search over the runs of a server finds.
TEST_F(Sinks, MlflowIsToldWhichMetricCounts) {
  tell_story(*make_sink(config::Sink::mlflow, {.run = rig_.run,
                                               .config = config_,
                                               .gpus = two_gpus(),
                                               .primary = {"rmse", false}}));
  EXPECT_THAT(file("mlflow.jsonl"),
              HasSubstr("{\"tags\":[{\"key\":\"lockstep.primary_metric\",\"value\":"
                        "\"eval/rmse\"},{\"key\":\"lockstep.primary_metric_goal\","
                        "\"value\":\"minimize\"}]}\n"));
}

TEST_F(Sinks, DcgmNamesAreOnlyThereWhenAskedFor) {
  tell(config::Sink::prometheus);
  EXPECT_THAT(file("metrics.prom"), Not(HasSubstr("DCGM")));
}

TEST_F(Sinks, PrometheusFileGoesWhereTheCollectorLooks) {
  const files::TemporaryDirectory collector;
  config_.prometheus_file = (collector.path() / "lockstep.prom").string();
  tell(config::Sink::prometheus);
  EXPECT_EQ(test::names_in(collector.path()),
            std::vector<std::string>{"lockstep.prom"});
}

TEST_F(Sinks, PrometheusLeavesNothingBesideItsFile) {
  const files::TemporaryDirectory collector;
  config_.prometheus_file = (collector.path() / "lockstep.prom").string();
  // What a process left that was killed while it wrote.
  const auto dead = test::in_child([&] {
    test::write_file(
        collector.path() / (".lockstep.prom." + files::owner_mark() + ".new"), "half");
    return 0;
  });
  EXPECT_EQ(dead, 0);
  ASSERT_EQ(test::names_in(collector.path()).size(), 1u);
  static_cast<void>(two_gpus());  // needs files that are larger
  const int failed = test::in_child([&] {
    test::limit_file_size(8);
    return test::error_of([&] { tell(config::Sink::prometheus); }) ? 0 : 1;
  });
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(test::names_in(collector.path()),
            std::vector<std::string>{"lockstep.prom"});
}

TEST_F(Sinks, PrometheusReplacesRegularFilesOnly) {
  const files::TemporaryDirectory collector;
  const auto fifo = collector.path() / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const auto device = test::full_device(collector.path());
  for (const auto& path : {fifo.string(), device.string()}) {
    config_.prometheus_file = path;
    EXPECT_THAT(test::error_text(Fault::io, [&] { tell(config::Sink::prometheus); }),
                HasSubstr("monitor.prometheus_file: cannot write '" + path));
  }
  EXPECT_TRUE(std::filesystem::is_fifo(fifo));
  EXPECT_TRUE(std::filesystem::is_character_file(device));
  const auto link = collector.path() / "link";
  std::filesystem::create_symlink("target", link);
  config_.prometheus_file = link.string();
  tell(config::Sink::prometheus);
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_THAT(test::read_file(collector.path() / "target"), HasSubstr("lockstep_step"));
}

// One request over a plain socket.
std::string ask(int port, const std::string& request) {
  const files::Descriptor socket(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  ::inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  EXPECT_EQ(
      ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address),
      0);
  EXPECT_GT(::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL), 0);
  std::string answer;
  std::array<char, 4096> part{};
  for (ssize_t n = 0; (n = ::recv(socket.get(), part.data(), part.size(), 0)) > 0;) {
    answer.append(part.data(), static_cast<std::size_t>(n));
  }
  return answer;
}

TEST(TextServer, AnswersAScraperAndNobodyElse) {
  const monitor::detail::TextServer server(
      "127.0.0.1", 0, [] { return std::string("lockstep_loss 1\n"); });
  const auto answer = ask(server.port(), "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(answer, ::testing::StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("text/plain; version=0.0.4; charset=utf-8"));
  EXPECT_THAT(answer, HasSubstr("Content-Length: 16\r\n"));
  EXPECT_THAT(answer, ::testing::EndsWith("\r\n\r\nlockstep_loss 1\n"));
  EXPECT_THAT(ask(server.port(), "GET / HTTP/1.1\r\n\r\n"), HasSubstr("404"));
  EXPECT_THAT(ask(server.port(), "POST /metrics HTTP/1.1\r\n\r\n"), HasSubstr("405"));
  EXPECT_THAT(ask(server.port(), "HEAD /metrics HTTP/1.1\r\n\r\n"),
              ::testing::EndsWith("\r\n\r\n"));
  EXPECT_THAT(ask(server.port(), std::string(20'000, 'x')),
              ::testing::Not(HasSubstr("200")));
}

TEST(TextServer, APortThatIsTakenIsNamedWithItsKnob) {
  const auto text = [] { return std::string(); };
  const monitor::detail::TextServer first("127.0.0.1", 0, text);
  const auto taken = test::error_text(
      Fault::io, [&] { monitor::detail::TextServer("127.0.0.1", first.port(), text); });
  EXPECT_THAT(taken, HasSubstr("monitor.prometheus_port"));
  EXPECT_THAT(taken, HasSubstr("taken by process " + std::to_string(::getpid())));
  EXPECT_THAT(
      test::error_text(Fault::io,
                       [&] { monitor::detail::TextServer("somewhere", 0, text); }),
      HasSubstr("monitor.prometheus_address"));
}

TEST_F(Sinks, PrometheusAnswersAtItsPort) {
  {  // a port that is free now
    const monitor::detail::TextServer probe("127.0.0.1", 0,
                                            [] { return std::string(); });
    config_.prometheus_port = probe.port();
  }
  const auto sink = make_sink(config::Sink::prometheus,
                              {.run = rig_.run, .config = config_, .gpus = two_gpus()});
  tell_story(*sink);
  EXPECT_THAT(ask(config_.prometheus_port, "GET /metrics HTTP/1.1\r\n\r\n"),
              HasSubstr("lockstep_step_total{run=\"0001\"} 10\n"));
  config_.prometheus_address = "nowhere";
  EXPECT_THAT(test::error_text(Fault::io, [&] { tell(config::Sink::prometheus); }),
              HasSubstr("'nowhere' is not an IP address"));
}

TEST(Crc32c, IsCastagnolis) {
  EXPECT_EQ(monitor::detail::crc32c("123456789"), 0xE3069283U);
}

TEST_F(Sinks, TensorBoardReadsTheEventFiles) {
  LOCKSTEP_NEEDS_ORACLE();
  tell_story(*make_sink(config::Sink::tensorboard, {.run = rig_.run,
                                                    .config = config_,
                                                    .gpus = two_gpus(),
                                                    .primary = {"accuracy", true}}));
  test::expect_oracle_agrees("tensorboard_read.py", {folder("tensorboard").string()});
}

TEST_F(Sinks, WandbReadsTheOfflineRun) {
  LOCKSTEP_NEEDS_ORACLE();
  config_.wandb_project = "my project";
  config_.wandb_entity = "us";
  // A record over several blocks: a metric with a very long name.
  const auto sink = make_sink(config::Sink::wandb, {.run = rig_.run,
                                                    .config = config_,
                                                    .gpus = two_gpus(),
                                                    .primary = {"accuracy", true}});
  sink->metrics({.step = 0, .loss = 2, .more = {{std::string(100'000, 'x'), 7.0}}});
  tell_story(*sink);
  EXPECT_THAT(sink->note(), HasSubstr("wandb sync"));
  test::expect_oracle_agrees("wandb_read.py", {folder("wandb").string()});
}

TEST_F(Sinks, PrometheusOwnReaderTakesTheText) {
  LOCKSTEP_NEEDS_ORACLE();
  config_.dcgm_names = true;
  const auto sink = make_sink(config::Sink::prometheus,
                              {.run = rig_.run, .config = config_, .gpus = two_gpus()});
  tell_story(*sink);
  sink->metrics({.step = 11, .loss = std::nan(""), .more = {}});
  sink->finish({});
  test::expect_oracle_agrees("prometheus_read.py", {folder("metrics.prom").string()});
}

}  // namespace
}  // namespace lockstep
