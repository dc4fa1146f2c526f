#include "lockstep/planner/history.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

namespace lockstep::planner {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;
constexpr std::size_t kKeptOfAModel = 8;
// Beyond this ratio a run was disturbed, or a clock jumped.
constexpr double kMostRatio = 1000;
// The most that a CPU rank's process has besides tensors; more is mapped files.
constexpr double kMostProcess = 2.0 * (1 << 30);
// Fewer runs than these say nothing of how far the next may be off.
constexpr std::size_t kFew = 3;
constexpr double kUsualTimeError = 0.25;
constexpr double kUsualMemoryError = 0.1;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle]
                                : (values[middle - 1] + values[middle]) / 2;
}

// Returns the largest distance from the middle, as a share of it; for few values at
// least the usual error.
double spread(const std::vector<double>& values, double middle, double usual) {
  double most = values.size() < kFew ? usual * middle : 0;
  for (const double value : values) most = std::max(most, std::abs(value - middle));
  return middle > 0 ? most / middle : 0;
}

bool is_sound(double predicted, double measured) {
  if (!(predicted > 0) || !(measured > 0)) return false;
  const double ratio = measured / predicted;
  return std::isfinite(ratio) && ratio < kMostRatio && ratio > 1 / kMostRatio;
}

Past past_of(const Json& json) {
  Past run;
  run.model = json.at("model").get<std::string>();
  run.device = json.at("device").get<std::string>();
  run.date = json.at("date").get<std::string>();
  run.ranks = json.at("ranks").get<int>();
  run.micro = json.at("micro").get<std::int64_t>();
  run.host_bound = json.value("host_bound", false);
  run.predicted_seconds = json.at("predicted_seconds").get<double>();
  run.measured_seconds = json.at("measured_seconds").get<double>();
  run.predicted_bytes = json.at("predicted_bytes").get<double>();
  run.measured_bytes = json.at("measured_bytes").get<double>();
  return run;
}

}  // namespace

std::string kind_of_memory(const config::Config& config,
                           const hardware::Machine& machine) {
  const auto device = config.parallel.device;
  const bool open = device == config::Device::automatic;
  if (device == config::Device::cuda || (open && !machine.gpus.empty())) return "cuda";
  return config.memory.host_limit > 0 ? "cpu_tensors" : "cpu";
}

std::string to_json(const std::vector<Past>& runs) {
  auto list = Json::array();
  for (const auto& run : runs) {
    list.push_back({{"model", run.model},
                    {"device", run.device},
                    {"date", run.date},
                    {"ranks", run.ranks},
                    {"micro", run.micro},
                    {"host_bound", run.host_bound},
                    {"predicted_seconds", run.predicted_seconds},
                    {"measured_seconds", run.measured_seconds},
                    {"predicted_bytes", run.predicted_bytes},
                    {"measured_bytes", run.measured_bytes}});
  }
  const Json document = {{"format", kFormat}, {"runs", list}};
  return document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::vector<Past> past_from_json(const std::string& text) {
  std::vector<Past> runs;
  try {
    const auto document = Json::parse(text);
    if (document.at("format").get<int>() > kFormat) return {};
    for (const auto& json : document.at("runs")) runs.push_back(past_of(json));
  } catch (const std::exception&) {
    return {};
  }
  return runs;
}

void remember(std::vector<Past>& runs, const Past& run) {
  const auto same = [&](const Past& one) {
    return one.model == run.model && one.device == run.device &&
           one.host_bound == run.host_bound;
  };
  auto count = static_cast<std::size_t>(std::count_if(runs.begin(), runs.end(), same));
  while (count-- >= kKeptOfAModel) {
    runs.erase(std::find_if(runs.begin(), runs.end(), same));  // the oldest
  }
  runs.push_back(run);
}

Correction estimate_correction(const std::vector<Past>& runs, const std::string& model,
                               const std::string& device) {
  std::vector<double> times, host_times, sizes, extra;
  for (const auto& run : runs) {
    if (run.model != model || run.device != device) continue;
    if (is_sound(run.predicted_seconds, run.measured_seconds)) {
      auto& ratios = run.host_bound ? host_times : times;
      ratios.push_back(run.measured_seconds / run.predicted_seconds);
    }
    if (!is_sound(run.predicted_bytes, run.measured_bytes)) continue;
    sizes.push_back(run.measured_bytes / run.predicted_bytes);
    extra.push_back(
        std::clamp(run.measured_bytes - run.predicted_bytes, 1.0, kMostProcess));
  }
  Correction correction;
  correction.runs =
      static_cast<int>(std::max(times.size() + host_times.size(), sizes.size()));
  // This is the spread of times that were not seen yet.
  if (correction.runs > 0) {
    correction.time_spread = correction.host_time_spread = kUsualTimeError;
  }
  if (!times.empty()) {
    correction.time = median(times);
    correction.time_spread = spread(times, correction.time, kUsualTimeError);
  }
  if (!host_times.empty()) {
    correction.host_time = median(host_times);
    correction.host_time_spread =
        spread(host_times, correction.host_time, kUsualTimeError);
  }
  if (sizes.empty()) return correction;
  if (device == "cuda") {
    correction.memory = median(sizes);
    correction.memory_spread = spread(sizes, correction.memory, kUsualMemoryError);
  } else {
    correction.memory_bytes = median(extra);
    correction.memory_spread =
        spread(extra, correction.memory_bytes, kUsualMemoryError);
  }
  return correction;
}

}  // namespace lockstep::planner
