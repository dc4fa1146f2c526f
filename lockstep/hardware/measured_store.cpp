#include "lockstep/hardware/measured_store.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/hash.h"
#include "lockstep/hardware/json.h"

namespace lockstep::hardware {
namespace {

constexpr double kSlow = 0.9;  // of the median

std::string hex(std::uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number));
  return text;
}

// Returns the upper of the two middle values if their number is even: of two that
// differ, the slow one has to show.
double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// A rate of one of several equals.
struct Rated {
  std::string who;     // "GPU 3"
  std::string equals;  // their common kind: "NVIDIA L4"
  std::optional<double> rate;
};

void name_slow(const std::vector<Rated>& all, const std::string& what,
               std::vector<std::string>& sentences) {
  std::map<std::string, std::vector<double>> groups;
  for (const auto& one : all) {
    if (one.rate) groups[one.equals].push_back(*one.rate);
  }
  for (const auto& one : all) {
    if (!one.rate) continue;
    const auto usual = median(groups.at(one.equals));
    if (usual <= 0 || *one.rate >= kSlow * usual) continue;
    const auto below = static_cast<int>(100 * (1 - *one.rate / usual) + 0.5);
    sentences.push_back(str(one.who, " is slow: ", what, " is ", below,
                            " % below the median of its equals (", one.equals, ")"));
  }
}

const Gpu* gpu_at(const Machine& machine, int index) {
  for (const auto& gpu : machine.gpus) {
    if (gpu.index == index) return &gpu;
  }
  return nullptr;
}

std::string name_at(const Machine& machine, int index) {
  const auto* gpu = gpu_at(machine, index);
  return gpu == nullptr ? "unknown" : gpu->name;
}

// Returns "NVIDIA L4 over 4 NVLinks".
std::string link_of(const Machine& machine, const MeasuredPair& wanted) {
  auto one = name_at(machine, wanted.first);
  auto other = name_at(machine, wanted.second);
  if (other < one) std::swap(one, other);
  const auto link = one == other ? one : str(one, " and ", other);
  for (const auto& pair : machine.gpu_pairs) {
    const bool same = std::minmax(pair.first, pair.second) ==
                      std::minmax(wanted.first, wanted.second);
    if (!same) continue;
    if (pair.nvlinks > 0) return str(link, " over ", pair.nvlinks, " NVLinks");
    return pair.path ? str(link, " over PCIe (", *pair.path, ")") : link;
  }
  return link;
}

Measured read_measured(const Path& path) {
  constexpr std::int64_t kLimit = 16 << 20;
  return measured_from_json(files::read(path, kLimit), path.string());
}

// Returns the measurements of this machine's GPUs, by their numbers here; empty if some
// GPU was not measured.
std::optional<Measured> seen_from(const Machine& machine, Measured measured) {
  std::map<std::string, int> numbers;
  for (const auto& gpu : machine.gpus) numbers[gpu.uuid] = gpu.index;
  std::map<int, int> now;  // the number here by the number at the measurement
  std::vector<MeasuredGpu> gpus;
  for (auto gpu : measured.gpus) {
    const auto found = numbers.find(gpu.uuid);
    if (gpu.uuid.empty() || found == numbers.end()) continue;
    now[gpu.index] = found->second;
    gpu.index = found->second;
    gpus.push_back(gpu);
  }
  if (gpus.size() != machine.gpus.size()) return std::nullopt;
  std::erase_if(measured.pairs, [&](const MeasuredPair& pair) {
    return !now.contains(pair.first) || !now.contains(pair.second);
  });
  for (auto& pair : measured.pairs) {
    pair.first = now[pair.first];
    pair.second = now[pair.second];
  }
  measured.gpus = std::move(gpus);
  return measured;
}

// CUDA_VISIBLE_DEVICES hides GPUs, but the measurements of the others still hold.
std::optional<Measured> measured_with_more(const Machine& machine,
                                           const Path& machines) {
  if (machine.gpus.empty()) return std::nullopt;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(machines, ignored)) {
    const auto path = entry.path() / "measured.json";
    if (!std::filesystem::exists(path, ignored)) continue;
    try {
      if (auto seen = seen_from(machine, read_measured(path))) return seen;
    } catch (const Error&) {
      // The file is another machine's, or load_measured() reports it.
    }
  }
  return std::nullopt;
}

}  // namespace

std::string machine_key(const Machine& machine) {
  auto text = str(machine.cpu_model, '\n', machine.physical_cores, '\n',
                  machine.logical_cores, '\n');
  for (const auto& gpu : machine.gpus) text += str(gpu.name, '\n', gpu.uuid, '\n');
  return hex(hash_of(text));
}

Path machine_directory(const Path& state, const Machine& machine) {
  return state / "machines" / machine_key(machine);
}

Path store_measured(const Machine& machine, const Path& state,
                    const Measured& measured) {
  const auto directory = machine_directory(state, machine);
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) files::fail("make", directory, error.value());
  const auto path = directory / "measured.json";
  files::write_atomically(path, to_json(measured));
  return path;
}

std::string load_measured(Machine& machine, const Path& state) {
  const auto path = machine_directory(state, machine) / "measured.json";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    machine.measured = measured_with_more(machine, state / "machines");
    return "";
  }
  try {
    machine.measured = read_measured(path);
    return "";
  } catch (const Error& error) {
    return str("what was measured of this machine is not used: ", error.what(),
               "; `lockstep hardware bench` measures again");
  }
}

std::vector<std::string> slow_ones(const Machine& machine, const Measured& measured) {
  struct Rate {
    const char* what;
    std::optional<double> MeasuredGpu::*value;
  };
  std::vector<std::string> sentences;
  for (const auto& [what, value] :
       {Rate{"copying within its memory", &MeasuredGpu::copy},
        Rate{"copying from the host", &MeasuredGpu::from_host},
        Rate{"copying to the host", &MeasuredGpu::to_host},
        Rate{"multiplying in bf16", &MeasuredGpu::bf16_flops},
        Rate{"multiplying in fp32", &MeasuredGpu::fp32_flops}}) {
    std::vector<Rated> all;
    for (const auto& gpu : measured.gpus) {
      all.push_back({str("GPU ", gpu.index), name_at(machine, gpu.index), gpu.*value});
    }
    name_slow(all, what, sentences);
  }
  std::vector<Rated> pairs;
  for (const auto& pair : measured.pairs) {
    pairs.push_back({str("GPU ", pair.first, " to GPU ", pair.second),
                     link_of(machine, pair), pair.copy});
  }
  name_slow(pairs, "copying", sentences);
  return sentences;
}

std::vector<std::string> broken_pairs(const Measured& measured) {
  std::vector<std::string> sentences;
  for (const auto& pair : measured.pairs) {
    if (pair.problem.empty()) continue;
    sentences.push_back(
        str("GPU ", pair.first, " and GPU ", pair.second, ": ", pair.problem,
            "; set NCCL_P2P_DISABLE=1, which avoids direct copies between GPUs, or "
            "switch the IOMMU or PCIe ACS off"));
  }
  return sentences;
}

}  // namespace lockstep::hardware
