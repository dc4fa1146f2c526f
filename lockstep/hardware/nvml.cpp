// The only file that knows NVML: a table of functions found at run time, declared here,
// because no distribution ships its header. The ABI is append-only.
#include "lockstep/hardware/detail/nvml.h"

#include <array>
#include <cstring>
#include <memory>
#include <optional>

#include <dlfcn.h>

#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/hardware/detail/limits.h"

namespace lockstep::hardware::detail {
namespace {

using Device = void*;
struct MemoryInfo {
  unsigned long long total, free, used;
};

struct Utilization {
  unsigned gpu, memory;
};

struct PciInfo {
  char legacy_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char id[32];  // "00000000:3B:00.0"
};

// The kernel writes small letters and four digits of the domain.
std::string kernel_pci_id(const PciInfo& info) {
  const auto id = text::lower(std::string(info.id, ::strnlen(info.id, sizeof info.id)));
  const auto colon = id.find(':');
  if (colon == std::string::npos) return "";
  return colon > 4 ? id.substr(colon - 4) : id;
}

struct CloseLibrary {
  void operator()(void* library) const noexcept { ::dlclose(library); }
};

class Nvml {
 public:
  // Nothing, and why in `note`, if it is not there or does not work.
  static std::optional<Nvml> load(const std::string& library, std::string& note) {
    Nvml nvml;
    nvml.library_.reset(::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL));
    if (!nvml.library_) {
      note = "no NVIDIA driver (libnvidia-ml.so.1 is not there)";
      return std::nullopt;
    }
    if (!nvml.find_all()) {
      note =
          "libnvidia-ml.so.1 lacks a function of NVML; is the driver older than 450?";
      return std::nullopt;
    }
    if (const int code = nvml.init_(); code != 0) {
      note = str("NVML does not start: ", nvml.error_string_(code));
      return std::nullopt;
    }
    nvml.started_ = true;
    return nvml;
  }

  Nvml(Nvml&&) = default;
  ~Nvml() {
    if (library_ && started_) shutdown_();
  }

  std::string driver_version() const {
    std::array<char, 96> version{};
    return driver_version_(version.data(), version.size()) == 0 ? version.data() : "";
  }

  std::string cuda_version() const {
    int version = 0;  // 13000 is 13.0
    if (cuda_version_(&version) != 0) return "";
    return str(version / 1000, ".", version % 1000 / 10);
  }

  std::vector<Gpu> gpus() const {
    std::vector<Gpu> found;
    for (auto* device : devices()) found.push_back(describe(device));
    return found;
  }

  std::vector<Device> devices() const {
    std::vector<Device> found;
    unsigned count = 0;
    if (count_(&count) != 0) return found;
    for (unsigned i = 0; i < count; ++i) {
      Device device = nullptr;
      if (handle_(i, &device) == 0) found.push_back(device);
    }
    return found;
  }

  std::string uuid(Device device) const {
    std::array<char, 128> text{};
    return uuid_(device, text.data(), text.size()) == 0 ? text.data() : "";
  }

  // In percent.
  std::optional<unsigned> busy(Device device) const {
    Utilization use{};
    if (utilization_ == nullptr || utilization_(device, &use) != 0) return std::nullopt;
    return use.gpu;
  }

 private:
  Nvml() = default;

  template <typename Function>
  bool find(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(::dlsym(library_.get(), name));
    return function != nullptr;
  }

  bool find_all() {
    find(pci_info_, "nvmlDeviceGetPciInfo_v3");  // only for placement: may be missing
    find(utilization_, "nvmlDeviceGetUtilizationRates");  // only for bench
    return find(init_, "nvmlInit_v2") && find(shutdown_, "nvmlShutdown") &&
           find(error_string_, "nvmlErrorString") &&
           find(count_, "nvmlDeviceGetCount_v2") &&
           find(handle_, "nvmlDeviceGetHandleByIndex_v2") &&
           find(name_, "nvmlDeviceGetName") && find(uuid_, "nvmlDeviceGetUUID") &&
           find(memory_, "nvmlDeviceGetMemoryInfo") &&
           find(capability_, "nvmlDeviceGetCudaComputeCapability") &&
           find(driver_version_, "nvmlSystemGetDriverVersion") &&
           find(cuda_version_, "nvmlSystemGetCudaDriverVersion_v2");
  }

  Gpu describe(Device device) const {
    Gpu gpu;
    std::array<char, 128> text{};
    if (name_(device, text.data(), text.size()) == 0) gpu.name = text.data();
    gpu.uuid = uuid(device);
    MemoryInfo memory{};
    if (memory_(device, &memory) == 0) {
      gpu.memory_total_bytes = static_cast<std::int64_t>(memory.total);
    }
    capability_(device, &gpu.compute_major, &gpu.compute_minor);
    PciInfo pci{};
    if (pci_info_ != nullptr && pci_info_(device, &pci) == 0) {
      gpu.pci_id = kernel_pci_id(pci);
    }
    return gpu;
  }

  std::unique_ptr<void, CloseLibrary> library_;
  bool started_ = false;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  const char* (*error_string_)(int) = nullptr;
  int (*count_)(unsigned*) = nullptr;
  int (*handle_)(unsigned, Device*) = nullptr;
  int (*name_)(Device, char*, unsigned) = nullptr;
  int (*uuid_)(Device, char*, unsigned) = nullptr;
  int (*memory_)(Device, MemoryInfo*) = nullptr;
  int (*capability_)(Device, int*, int*) = nullptr;
  int (*pci_info_)(Device, PciInfo*) = nullptr;
  int (*utilization_)(Device, Utilization*) = nullptr;
  int (*driver_version_)(char*, unsigned) = nullptr;
  int (*cuda_version_)(int*) = nullptr;
};

// An entry of CUDA_VISIBLE_DEVICES: a number, or the beginning of a UUID.
std::optional<std::size_t> position_of(const std::string& entry,
                                       const std::vector<Gpu>& all) {
  if (const auto index = text::to_integer(entry)) {
    if (*index < 0 || *index >= static_cast<long long>(all.size())) return std::nullopt;
    return static_cast<std::size_t>(*index);
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!entry.empty() && text::starts_with(all[i].uuid, entry)) return i;
  }
  return std::nullopt;
}

// CUDA's own rule: the list ends at the first entry that names no device.
std::vector<Gpu> visible(const std::vector<Gpu>& all, const std::string& wanted) {
  std::vector<Gpu> chosen;
  for (const auto& entry : text::split(wanted, ',')) {
    const auto position = position_of(std::string(text::trim(entry)), all);
    if (!position) break;
    chosen.push_back(all[*position]);
  }
  return chosen;
}

// Another root has its own library: a fixture with none has no GPU on any machine.
std::string library_of(const Path& root) {
  return root == "/" ? "libnvidia-ml.so.1"
                     : (root / "usr/lib/libnvidia-ml.so.1").string();
}

class NvmlReader : public UseReader {
 public:
  explicit NvmlReader(Nvml nvml) : nvml_(std::move(nvml)), devices_(nvml_.devices()) {}

  std::map<std::string, double> busy() override {
    std::map<std::string, double> all;
    for (auto* device : devices_) {
      if (const auto percent = nvml_.busy(device)) {
        all[nvml_.uuid(device)] = *percent / 100.0;
      }
    }
    return all;
  }

 private:
  Nvml nvml_;
  std::vector<Device> devices_;
};

}  // namespace

std::unique_ptr<UseReader> read_use(const Path& root) {
  std::string note;
  auto nvml = Nvml::load(library_of(root), note);
  if (!nvml) return nullptr;
  return std::make_unique<NvmlReader>(std::move(*nvml));
}

void add_gpus(const Path& root, Machine& machine) {
  const auto nvml = Nvml::load(library_of(root), machine.gpu_note);
  if (!nvml) return;
  machine.driver_version = nvml->driver_version();
  machine.cuda_driver_version = nvml->cuda_version();
  const auto all = nvml->gpus();
  const auto wanted = variable(root, "CUDA_VISIBLE_DEVICES");
  machine.gpus = wanted ? visible(all, *wanted) : all;
  for (std::size_t i = 0; i < machine.gpus.size(); ++i) {
    machine.gpus[i].index = static_cast<int>(i);
  }
  if (!machine.gpus.empty()) return;
  machine.gpu_note = all.empty()
                         ? "the NVIDIA driver shows no GPU"
                         : str("CUDA_VISIBLE_DEVICES='", *wanted,
                               "' hides all of them (", all.size(), " in the machine)");
}

}  // namespace lockstep::hardware::detail
