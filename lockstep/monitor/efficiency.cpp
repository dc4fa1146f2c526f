#include "lockstep/monitor/efficiency.h"

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep::monitor {

std::optional<Efficiency> read_efficiency(const files::Path& plan_json) {
  try {
    constexpr std::int64_t kLimit = 16 << 20;
    const auto plan = nlohmann::json::parse(files::read(plan_json, kLimit));
    const auto& values = plan.at("efficiency");
    const Efficiency efficiency{values.at("flops_per_sample").get<double>(),
                                values.at("peak_flops").get<double>()};
    if (efficiency.flops_per_sample > 0 && efficiency.peak_flops > 0) return efficiency;
  } catch (const Error&) {
    // Without a plan there is no such metric.
  } catch (const nlohmann::json::exception&) {
    // The plan does not say it.
  }
  return std::nullopt;
}

}  // namespace lockstep::monitor
