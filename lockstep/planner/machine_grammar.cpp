#include "lockstep/planner/machine_grammar.h"

#include <algorithm>
#include <array>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/text.h"

namespace lockstep::planner {
namespace {

using hardware::Gpu;
using hardware::Machine;

constexpr double kGibi = 1 << 30;
constexpr int kMostGpus = 64;
constexpr int kMostCores = 1024;

// A GPU as its driver names it, and the host that such GPUs are usually put into.
struct KnownGpu {
  std::string_view word;
  std::string_view name;
  double memory_gib;  // as a driver shows it: error correction may take a part
  int compute_major, compute_minor;
  int multiprocessors, clock_mhz;
  int pcie_generation;
  int nvlinks;  // of each pair; 0: over PCIe
  int cores;    // of the host, for each GPU
  int host_gib;
};

constexpr std::array kKnownGpus = {
    KnownGpu{"b200", "NVIDIA B200", 178.4, 10, 0, 148, 1965, 5, 18, 14, 256},
    KnownGpu{"h200", "NVIDIA H200", 140.4, 9, 0, 132, 1980, 5, 18, 12, 256},
    KnownGpu{"h100", "NVIDIA H100 80GB HBM3", 79.6, 9, 0, 132, 1980, 5, 18, 12, 128},
    KnownGpu{"h100-pcie", "NVIDIA H100 PCIe", 79.6, 9, 0, 114, 1755, 5, 0, 12, 128},
    KnownGpu{"a100-80", "NVIDIA A100-SXM4-80GB", 80, 8, 0, 108, 1410, 4, 12, 12, 128},
    KnownGpu{"a100-40", "NVIDIA A100-SXM4-40GB", 40, 8, 0, 108, 1410, 4, 12, 6, 128},
    KnownGpu{"v100-32", "Tesla V100-SXM2-32GB", 32, 7, 0, 80, 1530, 3, 1, 4, 60},
    KnownGpu{"v100-16", "Tesla V100-SXM2-16GB", 16, 7, 0, 80, 1530, 3, 1, 4, 60},
    KnownGpu{"l40s", "NVIDIA L40S", 45, 8, 9, 142, 2520, 4, 0, 12, 96},
    KnownGpu{"l4", "NVIDIA L4", 22.5, 8, 9, 58, 2040, 4, 0, 6, 48},
    KnownGpu{"a40", "NVIDIA A40", 45, 8, 6, 84, 1740, 4, 0, 8, 64},
    KnownGpu{"a30", "NVIDIA A30", 23.7, 8, 0, 56, 1440, 4, 0, 8, 64},
    KnownGpu{"a10g", "NVIDIA A10G", 22.5, 8, 6, 80, 1710, 4, 0, 6, 48},
    KnownGpu{"a10", "NVIDIA A10", 22.5, 8, 6, 72, 1695, 4, 0, 8, 48},
    KnownGpu{"t4", "Tesla T4", 15, 7, 5, 40, 1590, 3, 0, 6, 48},
    KnownGpu{"a6000", "NVIDIA RTX A6000", 48, 8, 6, 84, 1800, 4, 0, 8, 64},
    KnownGpu{"rtx6000ada", "NVIDIA RTX 6000 Ada Generation", 48, 8, 9, 142, 2505, 4, 0,
             8, 64},
    KnownGpu{"rtx5090", "NVIDIA GeForce RTX 5090", 31.8, 12, 0, 170, 2407, 5, 0, 8, 64},
    KnownGpu{"rtx4090", "NVIDIA GeForce RTX 4090", 24, 8, 9, 128, 2520, 4, 0, 8, 64},
    KnownGpu{"rtx4080", "NVIDIA GeForce RTX 4080", 16, 8, 9, 76, 2505, 4, 0, 8, 64},
    KnownGpu{"rtx3090", "NVIDIA GeForce RTX 3090", 24, 8, 6, 82, 1695, 4, 0, 8, 64},
    KnownGpu{"rtx3080", "NVIDIA GeForce RTX 3080", 10, 8, 6, 68, 1710, 4, 0, 8, 32},
};

// Takes a number from the front of the text; nothing if there is none.
std::optional<int> take_number(std::string_view& text) {
  const auto digits = std::min(text.find_first_not_of("0123456789"), text.size());
  constexpr std::size_t kMostDigits = 6;
  if (digits == 0 || digits > kMostDigits) return std::nullopt;
  const auto value = text::to_integer(text.substr(0, digits));
  text.remove_prefix(digits);
  return static_cast<int>(value.value_or(0));
}

// Returns the words that complete this one: "a100" is either of two cards.
std::vector<std::string> with_memory(std::string_view word) {
  std::vector<std::string> names;
  for (const auto& gpu : kKnownGpus) {
    if (gpu.word.starts_with(str(word, "-"))) names.emplace_back(gpu.word);
  }
  return names;
}

// `before` is what was typed in front of the word: "8x".
const KnownGpu& find_gpu(const std::string& word, const std::string& before) {
  for (const auto& gpu : kKnownGpus) {
    if (gpu.word == word) return gpu;
  }
  if (const auto longer = with_memory(word); !longer.empty()) {
    throw Error(Fault::config, "--hardware: there are several kinds of '", word,
                "'; write ", before, text::join(longer, " or " + before));
  }
  const auto names = grammar_gpus();
  std::vector<std::string> whole;
  for (const auto& name : names) whole.push_back(before + name);
  throw Error(Fault::config, "--hardware: unknown GPU '", word, "'",
              text::did_you_mean(before + word, whole), "; known are ",
              text::join(names, ", "), ", or a file of `lockstep hardware --json`");
}

Gpu gpu_of(const KnownGpu& known, int index) {
  Gpu gpu;
  gpu.index = index;
  gpu.name = known.name;
  gpu.memory_total_bytes = static_cast<std::int64_t>(known.memory_gib * kGibi);
  gpu.compute_major = known.compute_major;
  gpu.compute_minor = known.compute_minor;
  gpu.multiprocessors = known.multiprocessors;
  gpu.max_sm_clock_mhz = known.clock_mhz;
  gpu.max_pcie_generation = known.pcie_generation;
  gpu.max_pcie_width = 16;
  return gpu;
}

Machine host_of(int cores, double memory_gib) {
  Machine machine;
  machine.cpu_model = "x86 server";
  machine.physical_cores = cores;
  machine.logical_cores = 2 * cores;
  machine.sockets = cores > 32 ? 2 : 1;
  machine.memory_total_bytes = static_cast<std::int64_t>(memory_gib * kGibi);
  machine.memory_available_bytes = machine.memory_total_bytes;
  machine.cpu_extensions = {"avx2"};
  machine.max_cpu_mhz = 3000;
  return machine;
}

// GPUs i and j are on one host if i / per_host == j / per_host.
Machine machine_of(const KnownGpu& known, int per_host, int hosts) {
  const int gpus = per_host * hosts;
  auto machine =
      host_of(known.cores * gpus, static_cast<double>(known.host_gib) * gpus);
  for (int i = 0; i < gpus; ++i) {
    machine.gpus.push_back(gpu_of(known, i));
    for (int j = 0; j < i; ++j) {
      const bool near = i / per_host == j / per_host;
      machine.gpu_pairs.push_back({.first = j,
                                   .second = i,
                                   .nvlinks = near ? known.nvlinks : 0,
                                   .path = near ? "node" : "network",
                                   .peer_access = near && known.nvlinks > 0});
    }
  }
  return machine;
}

[[noreturn]] void refuse_count(int gpus) {
  throw Error(Fault::config, "--hardware: ", gpus, " GPUs; from 1 to ", kMostGpus,
              " can be planned for");
}

std::optional<Machine> cpu_machine(std::string_view text) {
  constexpr double kGibOfCore = 4;
  const auto cores = take_number(text);
  if (!cores || !text.empty()) return std::nullopt;
  if (*cores < 1 || *cores > kMostCores) {
    throw Error(Fault::config, "--hardware: ", *cores, " cores; from 1 to ", kMostCores,
                " can be planned for");
  }
  auto machine = host_of(*cores, kGibOfCore * *cores);
  machine.gpu_note = "the machine has none";
  return machine;
}

// Takes "4x" from the front; 1 if there is no such beginning.
int take_count(std::string_view& text) {
  auto rest = text;
  const auto count = take_number(rest);
  if (!count || !rest.starts_with('x')) return 1;
  text = rest.substr(1);
  return *count;
}

// Hosts with several GPUs each, as most people would write them: "2x4xh100",
// "2x(4xh100".
void refuse_hosts_without_parentheses(std::string_view rest, std::string_view words) {
  std::string plain(rest);
  std::erase_if(plain, [](char c) { return c == '(' || c == ')'; });
  std::string_view inner = plain;
  const auto count = take_number(inner);
  if (!count || !inner.starts_with('x')) return;
  const auto hosts = words.substr(0, words.find(rest));
  throw Error(Fault::config, "--hardware: '", words, "': did you mean '", hosts, "(",
              plain, ")'?");
}

}  // namespace

std::vector<std::string> grammar_gpus() {
  std::vector<std::string> names;
  for (const auto& gpu : kKnownGpus) names.emplace_back(gpu.word);
  return names;
}

std::optional<Machine> machine_by_grammar(const std::string& words) {
  const auto lower = text::lower(words);
  std::string_view text = lower;
  if (text.starts_with("cpu-")) return cpu_machine(text.substr(4));
  int hosts = 1;
  const bool counted = !text.empty() && text[0] >= '0' && text[0] <= '9';
  auto inner = text;
  const int outer = take_count(inner);
  if (inner.starts_with('(') && inner.ends_with(')')) {
    hosts = outer;
    text = inner.substr(1, inner.size() - 2);
  }
  const int per_host = take_count(text);
  const bool known = std::any_of(kKnownGpus.begin(), kKnownGpus.end(),
                                 [&](const KnownGpu& gpu) { return gpu.word == text; });
  // A word without a count may be a machine's name with a mistake in it.
  if (!counted && !known && with_memory(text).empty()) return std::nullopt;
  refuse_hosts_without_parentheses(text, lower);
  const auto before = lower.substr(0, lower.find(text));
  const auto& gpu = find_gpu(std::string(text), before);
  if (per_host < 1 || hosts < 1 || per_host > kMostGpus || hosts > kMostGpus ||
      per_host * hosts > kMostGpus) {
    refuse_count(per_host * hosts);
  }
  auto machine = machine_of(gpu, per_host, hosts);
  machine.hostname = words;
  return machine;
}

}  // namespace lockstep::planner
