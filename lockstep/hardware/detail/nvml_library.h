#pragma once

#include <memory>
#include <optional>
#include <string>

// NVML as it is found at run time. No distribution ships its header, so the functions
// that we call are declared here; the ABI is append-only, and _vN fixes the layout of a
// struct.
namespace lockstep::hardware::detail {

struct CloseLibrary {
  void operator()(void* library) const noexcept;
};
using Library = std::unique_ptr<void, CloseLibrary>;

// The values of nvmlReturn_t that we tell apart.
inline constexpr int kNvmlSuccess = 0;
inline constexpr int kNvmlInsufficientSize = 7;
inline constexpr int kNvmlFunctionNotFound = 13;

using NvmlDevice = void*;

struct NvmlMemory {
  unsigned long long total, free, used;
};
struct NvmlMemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct NvmlPci {
  char legacy_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char id[32];  // "00000000:3B:00.0"
};
struct NvmlUtilization {
  unsigned gpu, memory;
};
struct NvmlProcess {
  unsigned pid;
  unsigned long long used_bytes;  // all ones: not known
  unsigned gpu_instance, compute_instance;
};
struct NvmlFieldValue {
  unsigned field, scope;
  long long timestamp, latency;
  unsigned type;
  int result;
  unsigned long long value;
};

// A function that may be missing in the driver at hand.
template <typename... Arguments>
class NvmlFunction {
 public:
  int operator()(Arguments... arguments) const {
    return pointer_ == nullptr ? kNvmlFunctionNotFound : pointer_(arguments...);
  }
  void set(void* symbol) noexcept {
    pointer_ = reinterpret_cast<int (*)(Arguments...)>(symbol);
  }
  explicit operator bool() const noexcept { return pointer_ != nullptr; }

 private:
  int (*pointer_)(Arguments...) = nullptr;
};

using NvmlNumber = NvmlFunction<NvmlDevice, unsigned*>;
using NvmlText = NvmlFunction<NvmlDevice, char*, unsigned>;

// The functions, started by the constructor and shut down by the destructor.
//
// Threads: NVML's functions may be called from any.
class Nvml {
 public:
  // Returns null, with the reason in `note`, if it is not there or does not work.
  static std::unique_ptr<Nvml> load(const std::string& library, std::string& note);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::string error_text(int code) const;

  NvmlFunction<char*, unsigned> driver_version;
  NvmlFunction<int*> cuda_version;
  NvmlFunction<unsigned*> count;
  NvmlFunction<unsigned, NvmlDevice*> handle;
  NvmlText name, uuid;
  NvmlFunction<NvmlDevice, NvmlPci*> pci;
  NvmlFunction<NvmlDevice, NvmlMemory*> memory;
  NvmlFunction<NvmlDevice, NvmlMemoryV2*> memory_v2;
  NvmlFunction<NvmlDevice, int*, int*> capability;
  NvmlFunction<NvmlDevice, NvmlUtilization*> utilization;
  NvmlFunction<NvmlDevice, int, unsigned*> temperature, temperature_threshold;
  NvmlFunction<NvmlDevice, int, unsigned*> clock, max_clock;
  NvmlNumber power, power_limit, bus_width, persistence, pcie_replays;
  NvmlNumber pcie_generation, pcie_width, max_pcie_generation, max_pcie_width;
  NvmlFunction<NvmlDevice, unsigned long long*> energy, throttle_reasons;
  NvmlFunction<NvmlDevice, int*> compute_mode;
  NvmlFunction<NvmlDevice, unsigned*, unsigned*> ecc_mode, mig_mode;
  NvmlFunction<NvmlDevice, int, int, unsigned long long*> ecc_errors;
  NvmlFunction<NvmlDevice, unsigned*, unsigned*, unsigned*, unsigned*> remapped_rows;
  NvmlFunction<NvmlDevice, unsigned, unsigned*> nvlink_state, nvlink_version;
  NvmlFunction<NvmlDevice, unsigned, unsigned*> nvlink_remote_type;
  NvmlFunction<NvmlDevice, unsigned, NvmlPci*> nvlink_remote_pci;
  NvmlFunction<NvmlDevice, int, NvmlFieldValue*> field_values;
  NvmlFunction<NvmlDevice, unsigned*, NvmlProcess*> compute_processes,
      graphics_processes;
  NvmlFunction<NvmlDevice, NvmlDevice, int*> common_ancestor;
  NvmlFunction<NvmlDevice, NvmlDevice, int, int*> peer_status;
  NvmlNumber mig_capacity;
  NvmlFunction<NvmlDevice, unsigned, NvmlDevice*> mig_handle;

 private:
  Nvml() = default;
  void find_all();
  void find_status();
  void find_links();

  Library library_;
  bool started_ = false;
  NvmlFunction<> init_, shutdown_;
  const char* (*error_string_)(int) = nullptr;
};

}  // namespace lockstep::hardware::detail
