// The checks of `lockstep doctor`, one function each.
#include "lockstep/cli/detail/checks.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/process.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/cli/detail/build_info.h"
#include "lockstep/hardware/machine.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;
using Path = std::filesystem::path;

constexpr std::int64_t kLittleSpace = 1LL << 30;
constexpr std::string_view kSetup =
    "run ./scripts/setup.sh, or set LOCKSTEP_LIBTORCH to a folder with LibTorch 2.11.0";

// The worker's report on itself, or why there is none.
struct WorkerReport {
  std::optional<Json> facts;
  std::string problem;
};

std::string last_line(const std::string& text) {
  const auto lines = text::split(text::trim(text), '\n');
  return lines.empty() ? "" : lines.back();
}

WorkerReport ask_worker(const Path& worker) {
  if (!std::filesystem::exists(worker)) {
    return {std::nullopt, str("'", worker.string(), "' is not there")};
  }
  try {
    constexpr std::chrono::seconds kLimit{20};
    const auto output =
        process::run({.arguments = {worker.string(), "--version", "--json"},
                      .environment = {},
                      .directory = {}},
                     kLimit);
    auto facts = Json::parse(output.out, nullptr, false);
    if (output.end.ok() && facts.is_object()) return {std::move(facts), ""};
    return {std::nullopt,
            str("lockstep_worker ended with ", process::describe(output.end), ": ",
                last_line(output.err))};
  } catch (const Error& error) {
    return {std::nullopt, error.what()};
  }
}

std::string fact(const Json& facts, const char* name) {
  if (!facts.contains(name)) return "unknown";
  const auto& value = facts[name];
  return value.is_string() ? value.get<std::string>() : value.dump();
}

Check check_lockstep() {
  const auto info = build_info();
  return {.name = "lockstep",
          .detail = fmt::format("{} (git {}, {}, {})", info.version, info.git,
                                info.compiler, info.build_type)};
}

Check check_libtorch(const WorkerReport& worker) {
  if (!worker.facts) {
    return {.name = "libtorch",
            .verdict = Verdict::fail,
            .detail = worker.problem,
            .remedy = std::string(kSetup)};
  }
  const auto path = fact(*worker.facts, "libtorch_path");
  return {.name = "libtorch",
          .detail = fact(*worker.facts, "libtorch") +
                    (path.empty() || path == "unknown" ? "" : " in " + path)};
}

Check check_worker(const WorkerReport& worker) {
  const auto ours = build_info().version;
  const auto theirs = fact(*worker.facts, "lockstep");
  if (theirs == ours) return {.name = "worker", .detail = theirs};
  return {.name = "worker",
          .verdict = Verdict::fail,
          .detail = fmt::format("lockstep_worker is {}, lockstep is {}", theirs, ours),
          .remedy = "build both from the same tree"};
}

Check check_cuda(const WorkerReport& worker, const hardware::Machine& machine) {
  const auto& facts = *worker.facts;
  const bool usable = facts.value("cuda_available", false);
  Check check{.name = "cuda",
              .detail = fmt::format("CUDA {}, cuDNN {}, NCCL {}, own kernels: {}",
                                    fact(facts, "cuda"), fact(facts, "cudnn"),
                                    fact(facts, "nccl"), fact(facts, "kernels"))};
  if (!machine.gpus.empty() && !usable) {
    check.verdict = Verdict::warn;
    check.detail += "; there is a GPU, but the worker cannot use it";
    check.remedy =
        "rebuild with ./scripts/setup.sh on this machine, and look at the driver";
  }
  return check;
}

Check check_gpu(const hardware::Machine& machine) {
  if (machine.gpus.empty()) {
    return {.name = "gpu",
            .detail = "none: " + machine.gpu_note + "; training uses the CPU"};
  }
  std::string detail = fmt::format("driver {} (CUDA up to {})", machine.driver_version,
                                   machine.cuda_driver_version);
  for (const auto& gpu : machine.gpus) {
    detail += fmt::format("; {}: {}, {}, compute {}.{}", gpu.index, gpu.name,
                          units::format_bytes(gpu.memory_total_bytes),
                          gpu.compute_major, gpu.compute_minor);
  }
  return {.name = "gpu", .detail = detail};
}

Check check_cpu(const hardware::Machine& machine) {
  return {
      .name = "cpu",
      .detail = fmt::format("{}, {} usable cores ({} threads), {} socket{}",
                            machine.cpu_model.empty() ? "unknown" : machine.cpu_model,
                            machine.physical_cores, machine.logical_cores,
                            machine.sockets, machine.sockets == 1 ? "" : "s")};
}

Check check_memory(const hardware::Machine& machine) {
  Check check{.name = "memory",
              .detail = fmt::format("{} free of {}",
                                    units::format_bytes(machine.memory_available_bytes),
                                    units::format_bytes(machine.memory_total_bytes))};
  if (machine.memory_available_bytes < kLittleSpace) {
    check.verdict = Verdict::warn;
    check.remedy =
        "training needs about 1 GiB; end other programs or use a smaller batch";
  }
  return check;
}

// A run directory that does not exist yet is made below the nearest one that does.
Path nearest_existing(const Path& path) {
  std::error_code ignored;
  auto at = std::filesystem::absolute(path, ignored);
  while (at.has_parent_path() && at != at.parent_path() &&
         !std::filesystem::exists(at, ignored)) {
    at = at.parent_path();
  }
  return at;
}

Check check_disk(const std::string& run_dir) {
  const auto place = nearest_existing(run_dir);
  Check check{.name = "run dir", .detail = ""};
  if (::access(place.c_str(), W_OK | X_OK) != 0) {
    check.verdict = Verdict::fail;
    check.detail = fmt::format("'{}' cannot be written", place.string());
    check.remedy = "choose another place with run.dir=DIR";
    return check;
  }
  std::error_code error;
  const auto space = std::filesystem::space(place, error);
  const auto free_bytes = error ? 0 : static_cast<std::int64_t>(space.available);
  check.detail =
      fmt::format("{} free in {}", units::format_bytes(free_bytes), place.string());
  if (free_bytes < kLittleSpace) {
    check.verdict = Verdict::warn;
    check.remedy = "free some space, or choose another place with run.dir=DIR";
  }
  return check;
}

Check check_threads(const Context& context, const hardware::Machine& machine) {
  const auto given = context.variable("OMP_NUM_THREADS");
  const auto threads = given ? text::to_integer(*given) : std::nullopt;
  if (!threads || *threads <= machine.logical_cores) {
    return {
        .name = "threads",
        .detail = given ? "OMP_NUM_THREADS=" + *given : "OMP_NUM_THREADS is not set"};
  }
  return {.name = "threads",
          .verdict = Verdict::warn,
          .detail = fmt::format("OMP_NUM_THREADS={}, but only {} cores may be used",
                                *threads, machine.logical_cores),
          .remedy = "unset OMP_NUM_THREADS"};
}

}  // namespace

std::string_view name_of(Verdict verdict) noexcept {
  constexpr std::array<std::string_view, 3> kNames = {"ok", "warn", "fail"};
  return kNames[static_cast<std::size_t>(verdict)];
}

std::vector<Check> check_all(const Context& context, const std::string& run_dir) {
  const auto machine = hardware::detect();
  const auto worker =
      ask_worker(Path(context.executable).parent_path() / "lockstep_worker");
  std::vector<Check> checks{check_lockstep(), check_libtorch(worker)};
  if (worker.facts) {
    checks.push_back(check_worker(worker));
    checks.push_back(check_cuda(worker, machine));
  }
  checks.push_back(check_gpu(machine));
  checks.push_back({.name = "os",
                    .detail = fmt::format("{}, Linux {}", machine.os, machine.kernel)});
  checks.push_back(check_cpu(machine));
  checks.push_back(check_memory(machine));
  checks.push_back(check_disk(run_dir));
  checks.push_back(check_threads(context, machine));
  checks.push_back(check_data("/usr/share/datasets/fashion-mnist"));
  return checks;
}

Check check_data(const std::filesystem::path& directory) {
  for (const auto* name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                           "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}) {
    const auto plain = directory / name;
    auto packed = plain;
    packed += ".gz";
    std::error_code ignored;
    if (std::filesystem::exists(plain, ignored)) continue;
    if (std::filesystem::exists(packed, ignored)) continue;
    return {.name = "data",
            .verdict = Verdict::warn,
            .detail = fmt::format("fashion_mnist: '{}' is missing", packed.string()),
            .remedy = "apt install dataset-fashion-mnist, or set data.dir"};
  }
  return {.name = "data", .detail = "fashion_mnist in " + directory.string()};
}

std::vector<std::pair<std::string, std::string>> relevant_environment(
    const Context& context) {
  constexpr std::array<std::string_view, 15> kPrefixes = {"NCCL_",
                                                          "TORCH_",
                                                          "GLOO_",
                                                          "LOCKSTEP_",
                                                          "OMP_",
                                                          "KMP_",
                                                          "MKL_",
                                                          "CUDA_",
                                                          "PYTORCH_",
                                                          "NVIDIA_TF32_OVERRIDE",
                                                          "NVIDIA_VISIBLE_DEVICES",
                                                          "ONEDNN_",
                                                          "SLURM_JOB_ID",
                                                          "LD_LIBRARY_PATH",
                                                          "USE_LIBUV"};
  constexpr std::array<std::string_view, 6> kSecrets = {
      "TOKEN", "SECRET", "PASSWORD", "_KEY", "CREDENTIAL", "AUTH"};
  const auto found_in = [](const auto& list, const auto& test) {
    return std::any_of(list.begin(), list.end(), test);
  };
  std::vector<std::pair<std::string, std::string>> shown;
  for (const auto& [name, value] : context.environment) {
    const bool ours = found_in(kPrefixes, [&name = name](std::string_view prefix) {
      return text::starts_with(name, prefix);
    });
    if (!ours) continue;
    const bool secret = found_in(kSecrets, [&name = name](std::string_view word) {
      return name.find(word) != std::string::npos;
    });
    shown.emplace_back(name, secret ? "(set, not shown)" : value);
  }
  std::sort(shown.begin(), shown.end());
  return shown;
}

}  // namespace lockstep::cli
