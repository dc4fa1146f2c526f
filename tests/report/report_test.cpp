#include "lockstep/report/report.h"

#include <array>
#include <cmath>
#include <regex>

#include <nlohmann/json.hpp>

#include "lockstep/hardware/json.h"
#include "lockstep/monitor/metrics.h"
#include "lockstep/report/chart.h"
#include "lockstep/run/class_names.h"
#include "lockstep/run/events.h"
#include "lockstep/run/knobs.h"
#include "tests/run/run_rig.h"

namespace lockstep {
namespace {

using report::report_html;
using report::svg_of;
using ::testing::HasSubstr;
using ::testing::Not;

std::size_t count_of(const std::string& text, const std::string& what) {
  std::size_t count = 0;
  for (auto at = text.find(what); at != std::string::npos;
       at = text.find(what, at + 1)) {
    ++count;
  }
  return count;
}

TEST(ChartDrawing, HasAPathForEachLineAndALegendForSeveral) {
  const auto one = svg_of({.title = "Loss", .lines = {{"train", {{0, 1}, {1, 2}}}}});
  EXPECT_EQ(count_of(one, "<path "), 1U);
  EXPECT_EQ(count_of(one, "data-name=\"train\""), 1U);  // what a pointer shows
  const auto two = svg_of(
      {.title = "Loss", .lines = {{"train", {{0, 1}, {1, 2}}}, {"eval", {{1, 2}}}}});
  EXPECT_EQ(count_of(two, "<path "), 2U);
  EXPECT_EQ(count_of(two, ">eval<"), 1U);
}

TEST(ChartDrawing, NamesItsAxesAndSaysWhichIsLogarithmic) {
  report::Chart chart{.title = "Loss",
                      .unit = "nats",
                      .x_name = "step",
                      .lines = {{"x", {{0, 1}, {1, 2}}}}};
  EXPECT_THAT(svg_of(chart), HasSubstr(">Loss, nats<"));
  EXPECT_THAT(svg_of(chart), HasSubstr(">step<"));
  chart.logarithmic = true;
  EXPECT_THAT(svg_of(chart), HasSubstr(">Loss, nats (log scale)<"));
  chart.lines[0].points[0].second = 0;  // which no logarithm shows
  EXPECT_THAT(svg_of(chart), HasSubstr(">Loss, nats<"));
}

TEST(ChartDrawing, TheColorOfALineIsItsOwnWhateverOthersThereAre) {
  const report::ChartLine eval{.name = "eval", .points = {{0, 1}, {1, 2}}, .color = 1};
  const auto alone = svg_of({.title = "T", .lines = {eval}});
  const auto beside = svg_of({.title = "T", .lines = {{"train", {{0, 2}}}, eval}});
  EXPECT_EQ(count_of(alone, "#d9822b"), 1U);   // the line
  EXPECT_EQ(count_of(beside, "#d9822b"), 2U);  // and its name in the legend
}

TEST(ChartDrawing, StaysInsideItsFrame) {
  report::ChartLine line{.name = "x", .points = {}};
  for (int i = 0; i < 5000; ++i) {
    line.points.emplace_back(i, std::sin(i / 50.0) * 1e9);
  }
  const auto svg = svg_of({.title = "T", .lines = {line}});
  const std::regex point("[ML](-?[0-9.]+),(-?[0-9.]+)");
  int points = 0;
  for (std::sregex_iterator at(svg.begin(), svg.end(), point), end; at != end;
       ++at, ++points) {
    EXPECT_GE(std::stod((*at)[1]), 64);
    EXPECT_LE(std::stod((*at)[1]), 628);
    EXPECT_GE(std::stod((*at)[2]), 27.9);
    EXPECT_LE(std::stod((*at)[2]), 248.1);
  }
  EXPECT_GT(points, 500);
  EXPECT_LE(points, 802);
}

TEST(ChartDrawing, TakesWhatIsFlatEmptyOrNoNumber) {
  EXPECT_EQ(svg_of({.title = "T", .lines = {}}), "");
  EXPECT_EQ(svg_of({.title = "T", .lines = {{"x", {{0, std::nan("")}}}}}), "");
  EXPECT_THAT(svg_of({.title = "T", .lines = {{"x", {{0, 5}}}}}),
              Not(HasSubstr("nan")));
  const auto gap =
      svg_of({.title = "T",
              .lines = {{"x", {{0, 5}, {1, std::nan("")}, {2, 6}, {3, INFINITY}}}}});
  EXPECT_EQ(count_of(gap, "h0.1"), 2U);
  EXPECT_THAT(gap, Not(HasSubstr("nan")));
  EXPECT_THAT(gap, Not(HasSubstr("inf")));
}

TEST(ChartDrawing, FewPointsBesideManyAreMarked) {
  report::ChartLine train{.name = "train", .points = {}};
  for (int i = 0; i < 30; ++i) train.points.emplace_back(i, i);
  const auto svg = svg_of({.title = "T", .lines = {train, {"eval", {{29, 3}}}}});
  EXPECT_EQ(count_of(svg, "<circle"), 1U);
}

TEST(ChartDrawing, ALogarithmOfZeroIsNotDrawn) {
  const report::Chart chart{
      .title = "T", .lines = {{"x", {{0, 0}, {1, 10}}}}, .logarithmic = true};
  EXPECT_THAT(svg_of(chart), Not(HasSubstr("inf")));
}

TEST(ChartDrawing, ALogarithmicAxisHasRoundNumbers) {
  const auto svg = svg_of(
      {.title = "T", .lines = {{"x", {{0, 0.1}, {1, 2.3}}}}, .logarithmic = true});
  for (const auto* tick : {">0.1<", ">0.2<", ">0.5<", ">1<", ">2<"}) {
    EXPECT_THAT(svg, HasSubstr(tick));
  }
}

TEST(ChartDrawing, ALongLegendHasSeveralRows) {
  report::Chart chart{.title = "T", .lines = {}};
  for (int i = 0; i < 12; ++i) {
    chart.lines.push_back({"a run with a name " + std::to_string(i), {{0, 1}, {1, 2}}});
  }
  EXPECT_THAT(svg_of(chart), HasSubstr("viewBox=\"0 0 640 322\""));
}

TEST(ChartDrawing, TextIsEscaped) {
  EXPECT_EQ(report::html_text("<a href=\"x\">&\x1b"),
            "&lt;a href=&quot;x&quot;&gt;&amp; ");
}

void fill(const run::RunDirectory& run, double loss) {
  monitor::MetricsWriter metrics(run.metrics());
  for (int step = 1; step <= 20; ++step) {
    metrics.write({.step = step, .loss = loss / step, .more = {{"lr", 0.1}}});
  }
  metrics.write({.step = 20,
                 .split = monitor::Split::eval,
                 .loss = loss,
                 .more = {{"accuracy", 0.5}}});
  test::write_file(run.system(),
                   "{\"time\":10,\"step\":1,\"gpu_power_watts.0\":300,"
                   "\"cpu_utilization_ratio\":0.5}\n"
                   "{\"time\":70,\"step\":2,\"gpu_power_watts.0\":310,"
                   "\"cpu_utilization_ratio\":0.25}\ntorn");
  test::write_file(
      run.summary(),
      "{\"energy_kwh\":0.125,\"metrics\":{\"gpu_power_watts.0\":{\"mean\":305,"
      "\"min\":1,\"max\":2,\"p50\":3,\"p95\":4}}}");
  run::EventWriter(run.events())
      .write("alert", {{"text", std::string("<script>alert(1)</script>")}});
}

TEST(RunReport, HasCurvesNumbersEventsAndConfig) {
  const test::RunRig rig;
  fill(rig.run, 2);
  const auto page = report_html({rig.run});
  for (const auto* part :
       {"<title>Lockstep 0001</title>", ">Loss (log scale)<", ">Learning rate<",
        ">step<", ">GPU power, W<", ">CPU utilization, ratio<", ">minutes<",
        "0.125 kWh", "gpu_power_watts.0", "optim.lr", "<h2>Events</h2>"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
  EXPECT_EQ(count_of(page, "<script"), 1U);  // ours
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;"));
  EXPECT_THAT(page, Not(HasSubstr("http")));  // needs nothing from anywhere
  EXPECT_THAT(page, Not(HasSubstr("What differs")));
}

TEST(RunReport, FollowsTheTaskOfTheRun) {
  const test::RunRig rig;
  monitor::MetricsWriter metrics(rig.run.metrics());
  for (int step = 1; step <= 3; ++step) {
    metrics.write(
        {.step = step,
         .loss = 3.0 / step,
         .more = {{"loss_organ", 1.0 / step}, {"loss_findings", 2.0 / step}}});
    metrics.write({.step = step,
                   .split = monitor::Split::eval,
                   .loss = 3.0,
                   .more = {{"primary", std::string("perplexity")},
                            {"perplexity", 20.5},
                            {"accuracy", 0.125}}});
  }
  const auto page = report_html({rig.run});
  for (const auto* part :
       {"perplexity 20.5000", ">Perplexity<", ">Loss organ<", ">Loss findings<"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
  EXPECT_THAT(page, Not(HasSubstr(">Accuracy<")));
}

TEST(RunReport, OfSeveralSaysWhatDiffers) {
  const test::RunRig first("a"), second("b");
  fill(first.run, 2);
  fill(second.run, 3);
  const std::array knobs{config::Override{"optim.lr", "0.25"}};
  test::write_file(second.run.config(),
                   config::to_yaml(config::defaults(knobs, {}), false));
  const auto page = report_html({first.run, second.run});
  EXPECT_THAT(page, HasSubstr("What differs in the configs"));
  EXPECT_THAT(page, HasSubstr("<td>optim.lr</td><td>0.001</td><td>0.25</td>"));
  EXPECT_THAT(page, HasSubstr(">a train<"));
  EXPECT_THAT(page, HasSubstr(">b GPU 0<"));
}

TEST(RunReport, AConfusionMatrixHasTheNamesOfTheClasses) {
  const test::RunRig rig;
  run::write_class_names(rig.run, {"cat", "<dog>"});
  monitor::MetricsWriter metrics(rig.run.metrics());
  const auto evaluation = [&](int step, double right) {
    metrics.write({.step = step,
                   .split = monitor::Split::eval,
                   .more = {{"confusion_0_0", right},
                            {"confusion_0_1", 1.0},
                            {"confusion_1_0", 0.0},
                            {"confusion_1_1", 7.0}}});
  };
  evaluation(5, 2);
  evaluation(10, 3);
  const auto page = report_html({rig.run});
  EXPECT_THAT(page, HasSubstr("Evaluation after step 10"));
  EXPECT_THAT(page,
              HasSubstr("<th>cat</th><th>&lt;dog&gt;</th></tr>\n<tr><th>cat</th>"));
  EXPECT_THAT(page, HasSubstr("title=\"75.0 % of cat\">3</td>"));
  EXPECT_THAT(page, HasSubstr("title=\"25.0 % of cat\">1</td>"));
}

TEST(RunReport, ClassesWithoutNamesHaveNumbersAndADamagedFileHasNoNames) {
  const test::RunRig rig;
  test::write_file(rig.run.classes(), "[\"cat\", 3");
  monitor::MetricsWriter(rig.run.metrics())
      .write({.step = 1,
              .split = monitor::Split::eval,
              .more = {{"confusion_0_0", 1.0}, {"confusion_1_1", 1.0}}});
  EXPECT_THAT(report_html({rig.run}), HasSubstr("<th>0</th><th>1</th>"));
}

TEST(RunKnobs, AreThoseOfTheConfigWithoutQuotesAndComments) {
  auto loaded = config::defaults({}, {});
  loaded.config.run.name = "a: #b";
  loaded.config.run.dir = "it's";
  const files::TemporaryDirectory place;
  for (const bool with_sources : {false, true}) {
    test::write_file(place.path() / "config.yaml",
                     config::to_yaml(loaded, with_sources));
    const auto knobs = run::read_knobs(place.path() / "config.yaml");
    EXPECT_EQ(knobs.size(), config::keys().size());
    EXPECT_EQ(knobs.at("optim.lr"), "0.001");
    EXPECT_EQ(knobs.at("run.name"), "a: #b");
    EXPECT_EQ(knobs.at("run.dir"), "it's");
    EXPECT_EQ(knobs.at("monitor.sinks"), "[console, jsonl]");
  }
  EXPECT_TRUE(run::read_knobs("/no/such/file").empty());
}

TEST(RunReport, OfARunThatHasNothingYetIsAPage) {
  const test::RunRig rig;
  const auto page = report_html({rig.run});
  EXPECT_THAT(page, HasSubstr("planned"));
  EXPECT_THAT(page, ::testing::EndsWith("</html>\n"));
}

TEST(RunReport, SaysInWordsWhatItRanOn) {
  const test::RunRig rig;
  hardware::Machine machine;
  machine.hostname = "big<box>";
  machine.cpu_model = "A CPU";
  machine.physical_cores = 32;
  machine.logical_cores = 64;
  machine.memory_total_bytes = 256LL << 30;
  machine.gpu_note = "no driver";
  test::write_file(rig.run.machine(), to_json(machine));
  auto page = report_html({rig.run});
  EXPECT_THAT(page, HasSubstr("<h2>Machine</h2>"));
  EXPECT_THAT(page, HasSubstr("big&lt;box&gt;"));
  EXPECT_THAT(page, HasSubstr("A CPU, 32 usable cores (64 threads), 1 socket<"));
  EXPECT_THAT(page, HasSubstr("256.0 GiB, "));
  EXPECT_THAT(page, HasSubstr("none: no driver"));
  machine.gpus = {{.index = 0,
                   .name = "Example L4",
                   .memory_total_bytes = 24LL << 30,
                   .compute_major = 8,
                   .compute_minor = 9}};
  machine.driver_version = "580.1";
  machine.cuda_driver_version = "13.0";
  test::write_file(rig.run.machine(), to_json(machine));
  page = report_html({rig.run});
  EXPECT_THAT(page, HasSubstr("<td>GPU 0</td><td>Example L4, 24.0 GiB, compute 8.9<"));
  EXPECT_THAT(page, HasSubstr("580.1, CUDA up to 13.0"));
}

TEST(RunReport, PutsPredictedBesideMeasured) {
  const test::RunRig rig;
  EXPECT_THAT(report_html({rig.run}), Not(HasSubstr("Predicted")));
  auto record = nlohmann::json::parse(test::read_file(rig.run.record_file()));
  record["prediction"] = {
      {"memory_bytes", {{"predicted", 2LL << 30}, {"measured", 3LL << 30}}},
      {"step_seconds",
       {{"predicted", 0.010}, {"measured", 0.009}, {"low", 0.008}, {"high", 0.012}}}};
  test::write_file(rig.run.record_file(), record.dump());
  auto page = report_html({rig.run});
  EXPECT_THAT(page, HasSubstr("<h2>Predicted and measured</h2>"));
  EXPECT_THAT(page, HasSubstr("<td>2.0 GiB</td><td>-</td><td>3.0 GiB</td><td>-33 %<"));
  EXPECT_THAT(page, HasSubstr("<td>10 ms</td><td>8 ms to 12 ms</td><td>9 ms</td>"
                              "<td>+11 %<"));
  record["prediction"]["others_share"] = 0.4;
  test::write_file(rig.run.record_file(), record.dump());
  EXPECT_THAT(report_html({rig.run}), HasSubstr("<td>9 ms</td><td>(busy)<"));
  record["prediction"] = {{"memory_bytes", {{"predicted", 5}, {"measured", nullptr}}},
                          {"step_seconds", 7}};
  test::write_file(rig.run.record_file(), record.dump());
  page = report_html({rig.run});
  EXPECT_THAT(page, HasSubstr("<td>5 B</td><td>-</td><td>-</td><td>-<"));
  EXPECT_THAT(page, Not(HasSubstr("time of a step")));
}

TEST(RunReport, DamagedFilesAreLeftOut) {
  const test::RunRig rig;
  for (const auto& path : {rig.run.plan(), rig.run.summary(), rig.run.config(),
                           rig.run.system(), rig.run.metrics(), rig.run.events()}) {
    test::write_file(path,
                     "{\"metrics\": [1, {}], \"choices\": [3, {\"key\": 4}]} \xff\n");
  }
  EXPECT_THAT(report_html({rig.run}), ::testing::EndsWith("</html>\n"));
  test::write_file(rig.run.plan(), "{\"choices\": [3, {\"key\": 4}]}");
  test::write_file(rig.run.summary(),
                   "{\"energy_kwh\": \"x\", \"metrics\": {\"a\": 1}}");
  EXPECT_THAT(report_html({rig.run}), ::testing::EndsWith("</html>\n"));
}

}  // namespace
}  // namespace lockstep
