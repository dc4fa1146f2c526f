// lockstep gpus test: does every GPU compute what it should, alone and with the others?
#include <algorithm>
#include <ostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/detail/measure.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/cli/detail/run_view.h"
#include "lockstep/hardware/json.h"

namespace lockstep::cli {
namespace {

using hardware::GpuCheck;
using hardware::Machine;
using Json = nlohmann::ordered_json;

constexpr const char* kAlone = "all-reduce of two ranks on it";
constexpr const char* kTogether = "all-reduce over all GPUs";

class GpuTest {
 public:
  GpuTest(const Machine& machine, const Measurements& parts)
      : machine_(machine), parts_(parts) {
    for (const auto& gpu : machine.gpus)
      checks_.push_back({.index = gpu.index, .steps = {}});
  }

  std::vector<GpuCheck> run() {
    compute();
    for (std::size_t i = 0; i < machine_.gpus.size(); ++i) alone(i);
    if (machine_.gpus.size() > 1) together();
    return checks_;
  }

 private:
  // Tests half of what is free: other processes may want some meanwhile.
  static std::string tested_bytes(const hardware::Gpu& gpu) {
    constexpr std::int64_t kUnknown = 1 << 30;
    return str(gpu.status.memory_free_bytes.value_or(2 * kUnknown) / 2);
  }

  void add(GpuCheck& check, const PartEnd& end, const std::string& what) {
    if (!end.problem.empty()) {
      check.steps.push_back({.what = what, .problem = end.problem});
      return;
    }
    try {
      auto got = hardware::gpu_check_from_json(end.json, "lockstep_worker");
      for (auto& step : got.steps) {
        if (step.what == "all-reduce") step.what = what;
        check.steps.push_back(std::move(step));
      }
    } catch (const Error& error) {
      check.steps.push_back({.what = what, .problem = error.what()});
    }
  }

  void compute() {
    std::vector<Part> parts;
    for (const auto& gpu : machine_.gpus) {
      parts.push_back(
          {{"check", "--gpu", str(gpu.index), "--bytes", tested_bytes(gpu)}});
    }
    const auto ends = parts_.run(parts);
    for (std::size_t i = 0; i < ends.size(); ++i) {
      add(checks_[i], ends[i], "computation");
    }
  }

  static Part rank_on(const hardware::Gpu& gpu) {
    return {{"check-collective", "--gpu", str(gpu.index), "--backend", "nccl"}};
  }

  // NCCL lets two ranks share a GPU when they say that they are on different hosts.
  void alone(std::size_t i) {
    std::vector<Part> ranks(2, rank_on(machine_.gpus[i]));
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      ranks[r].environment.emplace_back("NCCL_HOSTID", str("lockstep-test-", r));
    }
    const auto ends = parts_.run_ranks(std::move(ranks));
    const auto failed = std::find_if(
        ends.begin(), ends.end(), [](const auto& end) { return !end.problem.empty(); });
    add(checks_[i], failed == ends.end() ? ends[0] : *failed, kAlone);
  }

  void together() {
    std::vector<Part> ranks;
    for (const auto& gpu : machine_.gpus) ranks.push_back(rank_on(gpu));
    const auto ends = parts_.run_ranks(std::move(ranks));
    for (std::size_t i = 0; i < ends.size(); ++i) {
      add(checks_[i], ends[i], kTogether);
      if (ends[i].late) {
        checks_[i].steps.back().problem +=
            "; try NCCL_P2P_DISABLE=1, and `lockstep hardware bench`, "
            "which looks at each pair";
      }
    }
  }

  const Machine& machine_;
  const Measurements& parts_;
  std::vector<GpuCheck> checks_;
};

std::string json_of(const Machine& machine, const std::vector<GpuCheck>& checks,
                    bool passed) {
  Json json;
  json["passed"] = passed;
  if (checks.empty() && machine.unusable_gpus.empty()) json["passed"] = nullptr;
  json["gpu_note"] = machine.gpu_note;
  json["gpus"] = Json::array();
  for (std::size_t i = 0; i < checks.size(); ++i) {
    Json one;
    one["index"] = checks[i].index;
    one["name"] = machine.gpus[i].name;
    one["uuid"] = machine.gpus[i].uuid;
    one["passed"] = checks[i].passed();
    one["steps"] = Json::parse(to_json(checks[i])).at("steps");
    json["gpus"].push_back(std::move(one));
  }
  json["unusable"] = Json::array();
  for (const auto& gpu : machine.unusable_gpus) {
    json["unusable"].push_back(
        {{"nvml_index", gpu.nvml_index}, {"reason", gpu.reason}});
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string text_of(const Machine& machine, const std::vector<GpuCheck>& checks) {
  std::vector<std::vector<std::string>> rows{{"GPU", "NAME", "RESULT", "CHECKS"}};
  for (std::size_t i = 0; i < checks.size(); ++i) {
    double seconds = 0;
    for (const auto& step : checks[i].steps) seconds += step.seconds;
    const bool passed = checks[i].passed();
    rows.push_back(
        {str(checks[i].index), machine.gpus[i].name, passed ? "pass" : "FAIL",
         passed ? fmt::format("{} in {:.1f} s", checks[i].steps.size(), seconds)
                : checks[i].problem()});
  }
  for (const auto& gpu : machine.unusable_gpus) {
    rows.push_back(
        {"-", fmt::format("the driver's GPU {}", gpu.nvml_index), "FAIL", gpu.reason});
  }
  return text::table(rows);
}

}  // namespace

int test_gpus(const Arguments& arguments, Context& context) {
  const auto machine = hardware::inspect(default_run_dir(context));
  const bool none = machine.gpus.empty() && machine.unusable_gpus.empty();
  std::vector<GpuCheck> checks;
  if (!machine.gpus.empty()) {
    const Measurements parts(context, time_limit(arguments));
    checks = GpuTest(machine, parts).run();
  }
  const bool passed = machine.unusable_gpus.empty() &&
                      std::all_of(checks.begin(), checks.end(),
                                  [](const auto& check) { return check.passed(); });
  if (arguments.has("--json")) context.out << json_of(machine, checks, passed);
  if (none) {
    context.err << "no GPU: " << printable(machine.gpu_note) << "\n";
    return arguments.has("--strict") ? kExitEnvironment : kExitOk;
  }
  if (!arguments.has("--json")) context.out << printable(text_of(machine, checks));
  return passed ? kExitOk : kExitFailed;
}

}  // namespace lockstep::cli
