#include <fmt/format.h>

#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/cli/detail/measure.h"

namespace lockstep::cli {
namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string bytes_a_second(const std::optional<double>& rate) {
  return rate ? fmt::format("{:.1f} GB/s", *rate / 1e9) : "n/a";
}

std::string flops(const std::optional<double>& rate) {
  if (!rate) return "n/a";
  return *rate >= 1e12 ? fmt::format("{:.1f} TFLOP/s", *rate / 1e12)
                       : fmt::format("{:.1f} GFLOP/s", *rate / 1e9);
}

std::string gpu_rates(const hardware::Measured& measured) {
  if (measured.gpus.empty()) return "";
  Rows rows{{"GPU", "COPY", "FROM HOST", "TO HOST", "BF16", "FP32"}};
  for (const auto& gpu : measured.gpus) {
    rows.push_back({fmt::format("{}", gpu.index), bytes_a_second(gpu.copy),
                    bytes_a_second(gpu.from_host), bytes_a_second(gpu.to_host),
                    flops(gpu.bf16_flops), flops(gpu.fp32_flops)});
  }
  return text::table(rows, {1, 2, 3, 4, 5});
}

std::string pair_rates(const hardware::Measured& measured) {
  if (measured.pairs.empty()) return "";
  Rows rows{{"BETWEEN GPUS", "COPY", "CHECK"}};
  for (const auto& pair : measured.pairs) {
    rows.push_back({fmt::format("{} to {}", pair.first, pair.second),
                    bytes_a_second(pair.copy),
                    pair.problem.empty() ? "ok" : pair.problem});
  }
  return text::table(rows, {1});
}

std::string collective_rates(const hardware::Measured& measured) {
  if (measured.collectives.empty()) return "";
  Rows rows{{"ALL-REDUCE", "RANKS", "SIZE", "TIME", "RATE"}};
  for (const auto& one : measured.collectives) {
    rows.push_back(
        {one.backend, fmt::format("{}", one.ranks), units::format_bytes(one.bytes),
         fmt::format("{:.3f} ms", 1e3 * one.seconds),
         one.seconds > 0 ? bytes_a_second(static_cast<double>(one.bytes) / one.seconds)
                         : "n/a"});
  }
  return text::table(rows, {1, 2, 3, 4});
}

}  // namespace

std::string measured_text(const hardware::Machine& machine,
                          const hardware::Measured& measured) {
  return fmt::format(
             "measured  {}: memory {} read and written, {} in fp32 on {} cores\n",
             measured.date.empty() ? "an unknown date" : measured.date,
             bytes_a_second(measured.host_copy), flops(measured.cpu_flops),
             machine.physical_cores) +
         gpu_rates(measured) + pair_rates(measured) + collective_rates(measured);
}

}  // namespace lockstep::cli
