// lockstep_worker --measure PART: rates of this machine, and whether its GPUs compute
// what they should. One part a process, because a GPU may hang, and then only this
// process with it; `lockstep hardware bench` and `lockstep gpus test` put them
// together.
#include "apps/worker_measure.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include <torch/torch.h>

#include "lockstep/base/text.h"
#include "lockstep/comm/join.h"
#include "lockstep/hardware/json.h"
#include "lockstep/probe/all_reduce.h"
#include "lockstep/probe/rates.h"
#include "lockstep/probe/transfer.h"
#include "lockstep/probe/verify.h"

namespace lockstep {
namespace {

constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kMiB = kKiB * 1024;

// Parses --name VALUE, each at most once.
class Options {
 public:
  explicit Options(const std::vector<std::string>& words) {
    if (words.empty()) throw Error(Fault::config, "lockstep_worker: --measure what?");
    part_ = words[0];
    for (std::size_t i = 1; i < words.size(); ++i) {
      const auto& name = words[i];
      if (name == "--quick") {
        quick_ = true;
      } else if (known(name) && i + 1 < words.size()) {
        values_[name] = words[++i];
      } else {
        throw Error(Fault::config, "lockstep_worker: --measure: '", name,
                    "' is no option, or has no value");
      }
    }
  }

  const std::string& part() const { return part_; }
  probe::Effort effort() const {
    return quick_ ? probe::Effort::quick() : probe::Effort();
  }
  bool quick() const { return quick_; }
  std::string text(const std::string& name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? "" : found->second;
  }
  std::int64_t number(const std::string& name, std::int64_t otherwise) const {
    const auto value = text(name);
    if (value.empty()) return otherwise;
    const auto number = text::to_integer(value);
    if (number && *number >= 0) return *number;
    throw Error(Fault::config, "lockstep_worker: --measure: ", name, " '", value,
                "' is not a number");
  }
  int gpu(const std::string& name) const { return static_cast<int>(number(name, 0)); }

 private:
  static bool known(const std::string& name) {
    return name == "--gpu" || name == "--peer" || name == "--threads" ||
           name == "--bytes" || name == "--backend";
  }

  std::string part_;
  bool quick_ = false;
  std::map<std::string, std::string> values_;
};

torch::Device device_of(const Options& options) {
  if (options.text("--gpu").empty()) return torch::kCPU;
  const int index = options.gpu("--gpu");
  if (!torch::cuda::is_available() || index >= torch::cuda::device_count()) {
    throw Error(Fault::hardware, "measure: there is no GPU ", index,
                " for this program; `lockstep doctor` says why");
  }
  return {torch::kCUDA, static_cast<c10::DeviceIndex>(index)};
}

comm::World meet(const Options& options, ConfigLoader load) {
  auto config = load({}).config.comm;
  const auto wanted = options.text("--backend");
  const auto names = config::names_of(config::CommBackend());
  const auto found = std::find(names.begin(), names.end(), wanted);
  if (found == names.end()) {
    throw Error(Fault::config, "lockstep_worker: --measure: --backend '", wanted,
                "' is none");
  }
  config.backend = static_cast<config::CommBackend>(found - names.begin());
  return comm::join(run::detect(run::process_variables()),
                    {.config = config, .device = device_of(options)});
}

hardware::Measured measure_collective(const Options& options, ConfigLoader load) {
  auto world = meet(options, load);
  const bool gpu = world.data().device().is_cuda();
  std::vector<std::int64_t> sizes{64 * kKiB, kMiB, 16 * kMiB};
  if (gpu && !options.quick()) sizes.push_back(256 * kMiB);
  hardware::Measured measured;
  measured.collectives = probe::measure_all_reduce(world, sizes, options.effort());
  world.close();
  return measured;
}

// Checks several GPUs, or several ranks on one.
hardware::GpuCheck check_collective(const Options& options, ConfigLoader load) {
  auto world = meet(options, load);
  const auto problem = probe::check_all_reduce(world);
  world.close();
  return {.index = options.gpu("--gpu"),
          .steps = {{.what = "all-reduce", .problem = problem}}};
}

hardware::GpuCheck check_gpu(const Options& options) {
  const probe::VerifyOptions wanted{
      .memory_bytes = options.number("--bytes", 64 * kMiB),
      .rows = options.quick() ? 512 : 4096};
  return {.index = options.gpu("--gpu"),
          .steps = probe::verify(device_of(options), wanted)};
}

std::string measured(const Options& options, ConfigLoader load) {
  const auto& part = options.part();
  if (part == "collective") return to_json(measure_collective(options, load));
  if (part == "check-collective") return to_json(check_collective(options, load));
  if (part == "check") return to_json(check_gpu(options));
  if (part == "host") return to_json(probe::measure_host(options.effort()));
  hardware::Measured measured;
  if (part == "gpu") {
    measured.gpus.push_back(probe::measure_gpu(options.gpu("--gpu"), options.effort()));
  } else if (part == "pair") {
    measured.pairs.push_back(probe::measure_pair(
        options.gpu("--gpu"), options.gpu("--peer"), options.effort()));
  } else {
    throw Error(Fault::config, "lockstep_worker: --measure: there is no part '", part,
                "'");
  }
  return to_json(measured);
}

}  // namespace

int run_measure(const std::vector<std::string>& words, ConfigLoader load) {
  const Options options(words);
  const auto threads = static_cast<int>(options.number("--threads", 1));
  torch::set_num_threads(std::max(threads, 1));
  std::string json;
  try {
    json = measured(options, load);
  } catch (const c10::OutOfMemoryError& error) {
    throw Error(Fault::hardware, "measure: the GPU has too little free memory (",
                text::split(error.what_without_backtrace(), '\n').front(),
                "); end what else uses it");
  }
  std::erase(json, '\n');
  // NCCL writes to standard output, too: the line begins a new one.
  std::printf("\n%s\n", json.c_str());
  std::fflush(stdout);
  return kExitOk;
}

}  // namespace lockstep
