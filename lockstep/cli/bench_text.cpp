// Makes the output of `lockstep bench`: a table, or one JSON object.
#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/cli/detail/bench.h"
#include "lockstep/cli/detail/json_line.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;
using monitor::StepPhase;

std::string percent(const std::optional<double>& share) {
  return share ? fmt::format("{:.0f} %", 100 * *share) : "-";
}

std::string milliseconds(double seconds) {
  return fmt::format("{:.2f}", 1e3 * seconds);
}

// Ranks that are threads share the memory of one process.
bool shares_memory(const BenchRow& row) {
  return row.which.strategy == config::Strategy::data_parallel && row.device == "cpu" &&
         row.which.ranks > 1;
}

std::string memory_of(const BenchRow& row) {
  if (row.peak_memory_bytes.empty()) return "-";
  const auto most =
      *std::max_element(row.peak_memory_bytes.begin(), row.peak_memory_bytes.end());
  return units::format_bytes(most) + (shares_memory(row) ? " (all)" : "");
}

std::vector<std::string> row_of(const BenchRow& row) {
  std::vector<std::string> cells{row.which.name(), str(row.which.ranks)};
  if (!row.error.empty()) {
    cells.emplace_back("failed");
    return cells;
  }
  cells.insert(cells.end(), {milliseconds(row.step_seconds),
                             units::format_rate(row.samples_per_second),
                             percent(row.efficiency), percent(row.busy), memory_of(row),
                             milliseconds(row.split.of(StepPhase::forward)),
                             milliseconds(row.split.of(StepPhase::backward)),
                             milliseconds(row.split.of(StepPhase::communication)),
                             milliseconds(row.split.of(StepPhase::optimizer)),
                             str(row.threads), str(row.global_batch)});
  return cells;
}

Json json_of(const BenchRow& row) {
  Json json{{"strategy", row.which.name()}, {"ranks", row.which.ranks}};
  json["state"] = row.error.empty() ? "done" : "failed";
  json["run"] = row.which.id();
  if (!row.error.empty()) {
    json["error"] = row.error;
    return json;
  }
  json["device"] = row.device;
  json["global_batch"] = row.global_batch;
  json["threads"] = row.threads;
  json["step_seconds"] = row.step_seconds;
  json["samples_per_second"] = row.samples_per_second;
  json["efficiency"] = row.efficiency ? Json(*row.efficiency) : Json();
  json["busy"] = row.busy ? Json(*row.busy) : Json();
  json["peak_memory_bytes"] = row.peak_memory_bytes;
  for (std::size_t p = 0; p < monitor::kNumPhases; ++p) {
    const auto phase = static_cast<StepPhase>(p);
    json["phases"][std::string(monitor::name_of(phase))] = row.split.of(phase);
  }
  return json;
}

std::string notes(const std::vector<BenchRow>& rows, const BenchRequest& request) {
  const bool gpu = std::any_of(rows.begin(), rows.end(),
                               [](const auto& row) { return row.device == "cuda"; });
  const bool uneven = std::any_of(rows.begin(), rows.end(), [&](const auto& row) {
    return row.error.empty() && row.threads != rows.front().threads;
  });
  const bool shared = std::any_of(rows.begin(), rows.end(), shares_memory);
  return fmt::format(
      "ms/step is the median of {} steps after {} of warm-up; forward, backward, "
      "exposed\n"
      "communication and optimizer are means in ms. Efficiency: samples/s of a rank "
      "against\n"
      "one rank alone. Busy: {}\n"
      "Memory: the most that a rank had{}.\n{}",
      request.steps, request.warmup,
      gpu ? "the share of the time in which the GPUs had work, by NVML."
          : "CPU seconds of all ranks over those of all cores.",
      shared ? "; (all): ranks are threads of one process, whose memory this is" : "",
      uneven && !gpu ? "Ranks share the cores (threads): parallel.threads=1 compares "
                       "ranks with one core each.\n"
                     : "");
}

}  // namespace

std::string bench_text(const std::vector<BenchRow>& rows, const BenchRequest& request) {
  std::vector<std::vector<std::string>> table{
      {"strategy", "ranks", "ms/step", "samples/s", "efficiency", "busy", "memory",
       "forward", "backward", "exposed", "optimizer", "threads", "batch"}};
  std::string failures;
  for (const auto& row : rows) {
    table.push_back(row_of(row));
    table.back().resize(table.front().size());
    if (row.error.empty()) continue;
    failures += str(row.which.text(), " failed: ", row.error, "\n");
  }
  return text::table(table, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}) + failures +
         notes(rows, request);
}

std::string bench_json(const std::vector<BenchRow>& rows, const BenchRequest& request,
                       const std::string& directory) {
  Json all = Json::array();
  for (const auto& row : rows) all.push_back(json_of(row));
  return json_line({{"version", 1},
                    {"dir", directory},
                    {"steps", request.steps},
                    {"warmup", request.warmup},
                    {"left_out", request.left_out},
                    {"results", std::move(all)}});
}

}  // namespace lockstep::cli
