// GPUs as NVML lists them: which there are, and which of them CUDA would show.
#include "lockstep/hardware/detail/nvml.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/hardware/detail/limits.h"

namespace lockstep::hardware::detail {
namespace {

constexpr int kLost = 15;
constexpr int kResetRequired = 16;

std::string text_of(const NvmlText& function, NvmlDevice device) {
  std::array<char, 128> text{};
  const int code = function(device, text.data(), text.size());
  return code == kNvmlSuccess ? std::string(text.data()) : "";
}

std::string driver_version(const Nvml& nvml) {
  std::array<char, 96> version{};
  const int code = nvml.driver_version(version.data(), version.size());
  return code == kNvmlSuccess ? version.data() : "";
}

std::string cuda_version(const Nvml& nvml) {
  int version = 0;  // 13000 is 13.0
  if (nvml.cuda_version(&version) != kNvmlSuccess) return "";
  return str(version / 1000, ".", version % 1000 / 10);
}

// Reads name, UUID, memory and bus id. Returns the error code of a lost GPU.
int identify(const Nvml& nvml, NvmlDevice device, Gpu& gpu) {
  gpu.name = text_of(nvml.name, device);
  gpu.uuid = text_of(nvml.uuid, device);
  NvmlMemory memory{};
  const int code = nvml.memory(device, &memory);
  if (code == kNvmlSuccess) {
    gpu.memory_total_bytes = static_cast<std::int64_t>(memory.total);
  }
  nvml.capability(device, &gpu.compute_major, &gpu.compute_minor);
  NvmlPci pci{};
  if (nvml.pci(device, &pci) == kNvmlSuccess) gpu.pci_id = kernel_pci_id(pci);
  return code == kLost || code == kResetRequired ? code : kNvmlSuccess;
}

std::vector<FoundGpu> mig_instances(const Nvml& nvml, const FoundGpu& whole) {
  std::vector<FoundGpu> instances;
  unsigned capacity = 0;
  if (nvml.mig_capacity(whole.device, &capacity) != kNvmlSuccess) return instances;
  for (unsigned i = 0; i < capacity; ++i) {
    FoundGpu found{.gpu = {}, .device = nullptr};
    // Numbers have gaps: an instance that was removed leaves its own.
    if (nvml.mig_handle(whole.device, i, &found.device) != kNvmlSuccess) continue;
    identify(nvml, found.device, found.gpu);
    found.gpu.nvml_index = whole.gpu.nvml_index;
    found.gpu.mig_parent = whole.gpu.uuid;
    found.gpu.compute_major = whole.gpu.compute_major;
    found.gpu.compute_minor = whole.gpu.compute_minor;
    if (found.gpu.pci_id.empty()) found.gpu.pci_id = whole.gpu.pci_id;
    if (found.gpu.name.empty()) found.gpu.name = whole.gpu.name + " MIG";
    instances.push_back(std::move(found));
  }
  return instances;
}

const FoundGpu* find_shown(const GpuFamily& family) {
  if (!family.mig) return &family.whole;
  return family.instances.empty() ? nullptr : &family.instances.front();
}

// An entry of CUDA_VISIBLE_DEVICES: a number, or the beginning of a UUID.
const FoundGpu* named_by(const std::string& entry, const std::vector<GpuFamily>& all) {
  if (const auto index = text::to_integer(entry)) {
    if (*index < 0 || *index >= static_cast<long long>(all.size())) return nullptr;
    return find_shown(all[static_cast<std::size_t>(*index)]);
  }
  if (entry.empty()) return nullptr;
  for (const auto& family : all) {
    for (const auto& instance : family.instances) {
      if (text::starts_with(instance.gpu.uuid, entry)) return &instance;
    }
    if (text::starts_with(family.whole.gpu.uuid, entry)) return find_shown(family);
  }
  return nullptr;
}

void add_cuda_facts(const CudaDevice& from, Gpu& to) {
  to.multiprocessors = from.multiprocessors;
  to.max_threads_per_block = from.max_threads_per_block;
  to.max_threads_per_multiprocessor = from.max_threads_per_multiprocessor;
  to.shared_memory_per_block_bytes = from.shared_memory_per_block_bytes;
  to.shared_memory_per_multiprocessor_bytes =
      from.shared_memory_per_multiprocessor_bytes;
  to.l2_bytes = from.l2_bytes;
  if (from.memory_bus_bits) to.memory_bus_bits = from.memory_bus_bits;
}

std::vector<FoundGpu> in_cudas_order(const std::vector<GpuFamily>& all,
                                     const std::vector<CudaDevice>& cuda) {
  std::vector<FoundGpu> result;
  for (const auto& device : cuda) {
    for (const auto& family : all) {
      auto candidates = family.instances;
      candidates.push_back(family.whole);
      for (auto& candidate : candidates) {
        if (bare_uuid(candidate.gpu.uuid) != device.uuid) continue;
        add_cuda_facts(device, candidate.gpu);
        result.push_back(std::move(candidate));
      }
    }
  }
  return result;
}

// CUDA numbers unlike GPUs by speed, and shows one instance at most: only libcuda
// knows.
bool order_is_cudas_secret(const std::vector<GpuFamily>& all, const Path& root) {
  const bool mig = std::any_of(all.begin(), all.end(),
                               [](const auto& family) { return family.mig; });
  if (mig || all.empty()) return mig;
  if (variable(root, "CUDA_DEVICE_ORDER") == "PCI_BUS_ID") return false;
  return std::any_of(all.begin(), all.end(), [&](const auto& family) {
    return family.whole.gpu.name != all.front().whole.gpu.name;
  });
}

int count_hidden(const std::vector<GpuFamily>& all,
                 const std::vector<FoundGpu>& shown) {
  return static_cast<int>(
      std::count_if(all.begin(), all.end(), [&](const GpuFamily& family) {
        return std::none_of(shown.begin(), shown.end(), [&](const FoundGpu& found) {
          return found.gpu.nvml_index == family.whole.gpu.nvml_index;
        });
      }));
}

std::string why_none(const std::vector<GpuFamily>& all, const Machine& machine,
                     const std::optional<std::string>& wanted) {
  if (!all.empty() && wanted) {
    return str("CUDA_VISIBLE_DEVICES='", *wanted, "' hides all of them (", all.size(),
               " in the machine)");
  }
  if (!all.empty()) return "they are in MIG mode and have no instance";
  if (machine.unusable_gpus.empty()) return "the NVIDIA driver shows no GPU";
  const auto& first = machine.unusable_gpus.front();
  return str("GPU ", first.nvml_index, " cannot be used: ", first.reason,
             machine.unusable_gpus.size() > 1 ? ", nor can the others" : "");
}

}  // namespace

std::string nvidia_library(const Path& root, const std::string& name) {
  return root == "/" ? name : (root / "usr/lib" / name).string();
}

std::string kernel_pci_id(const NvmlPci& info) {
  const auto id = text::lower(std::string(info.id, ::strnlen(info.id, sizeof info.id)));
  const auto colon = id.find(':');
  if (colon == std::string::npos) return "";
  return colon > 4 ? id.substr(colon - 4) : id;
}

std::vector<GpuFamily> all_gpus(const Nvml& nvml, std::vector<UnusableGpu>& unusable) {
  std::vector<GpuFamily> all;
  unsigned count = 0;
  if (nvml.count(&count) != kNvmlSuccess) return all;
  for (unsigned i = 0; i < count; ++i) {
    GpuFamily family;
    auto& whole = family.whole;
    whole.gpu.nvml_index = static_cast<int>(i);
    int code = nvml.handle(i, &whole.device);
    if (code == kNvmlSuccess) code = identify(nvml, whole.device, whole.gpu);
    if (code != kNvmlSuccess) {
      unusable.push_back({whole.gpu.nvml_index, nvml.error_text(code)});
      continue;
    }
    unsigned now = 0, after_reset = 0;
    family.mig =
        nvml.mig_mode(whole.device, &now, &after_reset) == kNvmlSuccess && now == 1;
    if (family.mig) family.instances = mig_instances(nvml, whole);
    all.push_back(std::move(family));
  }
  return all;
}

std::vector<FoundGpu> visible_gpus(const std::vector<GpuFamily>& all,
                                   const std::optional<std::string>& wanted,
                                   const std::optional<std::vector<CudaDevice>>& cuda) {
  if (cuda) return in_cudas_order(all, *cuda);
  std::vector<FoundGpu> chosen;
  if (!wanted) {
    for (const auto& family : all) {
      if (const auto* shown = find_shown(family)) chosen.push_back(*shown);
    }
  } else {
    // CUDA's own rule: the list ends at the first entry that names no device.
    for (const auto& entry : text::split(*wanted, ',')) {
      const auto* found = named_by(std::string(text::trim(entry)), all);
      if (found == nullptr) break;
      chosen.push_back(*found);
    }
  }
  // A process can use one instance, and then nothing else.
  const auto instance = std::find_if(chosen.begin(), chosen.end(), [](const auto& gpu) {
    return !gpu.gpu.mig_parent.empty();
  });
  if (instance != chosen.end()) chosen = {*instance};
  return chosen;
}

std::vector<FoundGpu> usable_gpus(const GpuSearch& search, Machine& machine) {
  const auto& [nvml, root, depth] = search;
  machine.driver_version = driver_version(nvml);
  machine.cuda_driver_version = cuda_version(nvml);
  const auto all = all_gpus(nvml, machine.unusable_gpus);
  const auto wanted = variable(root, "CUDA_VISIBLE_DEVICES");
  const bool ask_cuda = depth == Depth::full || order_is_cudas_secret(all, root);
  auto gpus = visible_gpus(all, wanted, ask_cuda ? cuda_devices(root) : std::nullopt);
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    gpus[i].gpu.index = static_cast<int>(i);
  }
  machine.hidden_gpus = count_hidden(all, gpus);
  if (gpus.empty()) machine.gpu_note = why_none(all, machine, wanted);
  return gpus;
}

void add_gpus(const Path& root, Depth depth, Machine& machine) {
  const auto nvml =
      Nvml::load(nvidia_library(root, "libnvidia-ml.so.1"), machine.gpu_note);
  if (!nvml) return;
  auto gpus = usable_gpus({.nvml = *nvml, .root = root, .depth = depth}, machine);
  if (depth == Depth::full) {
    for (auto& found : gpus) add_details(*nvml, root, found);
    machine.gpu_pairs = read_pairs(*nvml, gpus);
  }
  for (auto& found : gpus) machine.gpus.push_back(std::move(found.gpu));
}

}  // namespace lockstep::hardware::detail
