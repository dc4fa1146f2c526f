#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/config/monitor.h"
#include "lockstep/monitor/metrics.h"
#include "lockstep/monitor/system_probe.h"

namespace lockstep::monitor {

// A condition that began to be wrong, or is over.
struct Alert {
  std::string rule;  // "temperature", "throttled", "memory", "utilization",
                     // "data_wait", "loss", "no_step", "ecc"
  std::optional<int> gpu;
  bool raised = true;
  std::string text;  // one sentence with values
};

// Decides when to speak: a condition has to last (monitor.alert_after), and one that
// was reported is reported again only after it was over by a margin for as long.
//
// Threads: one at a time. No clock and no files of its own.
class Alerts {
 public:
  Alerts(const config::MonitorConfig& config, std::vector<hardware::Gpu> gpus);

  // `now` grows from call to call. `last_step` is when a step was last finished,
  // nothing before the first one.
  std::vector<Alert> sample(const SystemSample& sample, SteadyTime now,
                            std::optional<SteadyTime> last_step);
  std::vector<Alert> metrics(const Metrics& metrics, SteadyTime now);

 private:
  struct State {
    bool raised = false;
    std::optional<SteadyTime> changing_since;  // that the condition is the other way
  };
  struct Finding {
    std::string rule;
    std::optional<int> gpu = {};
    bool bad = false;   // now
    bool over = false;  // with a margin; neither: stays as it is
    std::string text = {};
    bool at_once = false;
  };
  void judge(const Finding& finding, SteadyTime now, std::vector<Alert>& alerts);
  struct GpuSample {
    const hardware::Gpu& gpu;
    const hardware::GpuStatus& status;
    bool trains = false;
  };
  void judge_gpu(const GpuSample& sample, SteadyTime now, std::vector<Alert>& alerts);
  void judge_load(const GpuSample& sample, SteadyTime now, std::vector<Alert>& alerts);
  void judge_host(const SystemSample& sample, SteadyTime now,
                  std::vector<Alert>& alerts);

  const config::MonitorConfig config_;
  const std::vector<hardware::Gpu> gpus_;
  std::map<std::pair<std::string, int>, State> states_;
  std::map<int, std::int64_t> ecc_at_start_;
  std::optional<SteadyTime> last_metrics_;
};

}  // namespace lockstep::monitor
