#include "lockstep/monitor/catalogue.h"

#include <regex>
#include <set>

#include <nlohmann/json.hpp>

#include "lockstep/config/eval.h"
#include "lockstep/monitor/system_probe.h"
#include "tests/hardware/fake_machine.h"
#include "tests/support/support.h"

namespace lockstep {
namespace {

using monitor::find_metric;
using monitor::prometheus_name;
using ::testing::HasSubstr;

TEST(Catalogue, NamesAreUniqueAndEachHasHelp) {
  std::set<std::string_view> names, families;
  for (const auto& metric : monitor::catalogue()) {
    EXPECT_TRUE(names.insert(metric.name).second) << metric.name;
    EXPECT_THAT(std::string(metric.help), ::testing::EndsWith(".")) << metric.name;
    const auto family = prometheus_name(metric.name);
    EXPECT_TRUE(std::regex_match(family, std::regex("lockstep_[a-z0-9_]+"))) << family;
  }
}

TEST(Catalogue, NamesForPrometheusAreItsOwn) {
  EXPECT_EQ(prometheus_name("loss"), "lockstep_loss");
  EXPECT_EQ(prometheus_name("step"), "lockstep_step_total");
  EXPECT_EQ(prometheus_name("gpu_energy_joules"), "lockstep_gpu_energy_joules_total");
  EXPECT_EQ(prometheus_name("top-5 hits"), "lockstep_top_5_hits");
}

// After a wanted change: LOCKSTEP_UPDATE_SNAPSHOTS=1 build/tests/test_monitor
TEST(Catalogue, IsThePageInTheDocuments) {
  const auto path = test::source_root() / "docs/reference/metrics.md";
  const auto text = monitor::catalogue_markdown();
  if (std::getenv("LOCKSTEP_UPDATE_SNAPSHOTS") != nullptr) test::write_file(path, text);
  EXPECT_EQ(test::read_file(path), text);
}

TEST(Catalogue, HasAllThatTheProbeReads) {
  auto state = test::fake_gpus(1);
  state["gpus"][0]["nvlink_kib"] = {1, 2};
  const test::FakeMachine machine(state);
  std::set<std::string_view> seen;
  for (const auto& root : {machine.root(), hardware::Path("/")}) {
    ManualClock clock;
    monitor::SystemProbe probe({.run_directory = "/tmp", .root = root, .clock = clock});
    for (int i = 0; i < 2; ++i) {
      for (const auto& reading : probe.read().readings) {
        const auto* metric = find_metric(reading.name);
        ASSERT_NE(metric, nullptr) << reading.name;
        EXPECT_EQ(metric->scope == monitor::MetricScope::gpu, reading.gpu.has_value());
        seen.insert(reading.name);
      }
      clock.advance(std::chrono::seconds(1));
    }
  }
  // And nothing of the machine is in the catalogue that no probe reads.
  for (const auto& metric : monitor::catalogue()) {
    if (metric.scope == monitor::MetricScope::gpu) {
      EXPECT_TRUE(seen.contains(metric.name)) << metric.name;
    }
  }
}

// Every field that the run directory documents for metrics.jsonl.
TEST(Catalogue, HasTheFieldsOfMetricsJsonl) {
  const auto document = test::read_file(test::source_root() / "docs/run_directory.md");
  for (const auto* name :
       {"step", "loss", "epoch", "lr", "samples_per_second", "data_wait_seconds",
        "memory_bytes", "exchange_wait_seconds", "straggler_rank", "straggler_seconds",
        "tokens_per_second", "step_seconds", "mfu_ratio", "checkpoint_seconds",
        "samples", "seconds"}) {
    EXPECT_NE(find_metric(name), nullptr) << name;
    EXPECT_THAT(document, HasSubstr("`" + std::string(name) + "`"));
  }
}

TEST(Catalogue, EveryMetricHasAHelpOfItsOwn) {
  for (const auto& metric : monitor::catalogue()) {
    EXPECT_THAT(monitor::help_of(metric.name), ::testing::EndsWith("."));
  }
  // As tasks call their values.
  for (const auto* name :
       {"accuracy_top_5", "accuracy_class_3", "vqa_f1", "auroc_label_2", "perplexity",
        "confusion_0_1", "average_precision_micro", "text_bits_per_byte", "mae", "rmse",
        "age_r2"}) {
    EXPECT_THAT(monitor::help_of(name), HasSubstr("(eval.metrics).")) << name;
  }
  EXPECT_THAT(monitor::help_of("accuracy_class_3"), HasSubstr("Accuracy of one class"));
  EXPECT_EQ(monitor::help_of("vqa_accuracy"), "Share of correct predictions.");
  EXPECT_EQ(monitor::help_of("my_metric"),
            "Metric 'my_metric' of the run's task or program.");
}

TEST(Dashboard, AsksOnlyForMetricsThatExist) {
  const auto text = test::read_file(test::source_root() / "docs/grafana/lockstep.json");
  const auto board = nlohmann::json::parse(text);
  EXPECT_GE(board.at("schemaVersion").get<int>(), 36);
  std::set<std::string> families;
  for (const auto& metric : monitor::catalogue()) {
    families.insert(prometheus_name(metric.name));
  }
  const std::regex name("lockstep_[a-z0-9_]+");
  int asked = 0;
  std::set<int> ids;
  for (const auto& panel : board.at("panels")) {
    EXPECT_TRUE(ids.insert(panel.at("id").get<int>()).second);
    EXPECT_EQ(panel.at("datasource").at("uid"), "$datasource");
    for (const auto& target : panel.at("targets")) {
      const std::string expression = target.at("expr");
      std::sregex_iterator at(expression.begin(), expression.end(), name), end;
      EXPECT_NE(at, end) << expression;
      for (; at != end; ++at, ++asked) {
        EXPECT_TRUE(families.contains(at->str())) << at->str();
      }
    }
  }
  EXPECT_GT(asked, 10);
  for (const auto* wanted : {"lockstep_mfu_ratio", "lockstep_step_seconds",
                             "lockstep_straggler_rank", "lockstep_straggler_seconds"}) {
    EXPECT_THAT(text, ::testing::HasSubstr(wanted));
  }
  for (const auto& variable : board.at("templating").at("list")) {
    if (variable.at("type") != "query") continue;
    const std::string query = variable.at("query");
    std::smatch found;
    ASSERT_TRUE(std::regex_search(query, found, name)) << query;
    EXPECT_TRUE(families.contains(found.str())) << query;
  }
}

}  // namespace
}  // namespace lockstep
