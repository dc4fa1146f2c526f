#include "lockstep/hardware/detail/nvml_library.h"

#include <dlfcn.h>

#include "lockstep/base/str.h"

namespace lockstep::hardware::detail {
namespace {

// Loads the first name that the library has: newer ones stand first.
template <typename Function, typename... Names>
void find(void* library, Function& function, Names... names) {
  for (const char* name : {names...}) {
    if (void* symbol = ::dlsym(library, name)) return function.set(symbol);
  }
}

}  // namespace

void CloseLibrary::operator()(void* library) const noexcept {
  ::dlclose(library);
}

std::unique_ptr<Nvml> Nvml::load(const std::string& library, std::string& note) {
  std::unique_ptr<Nvml> nvml(new Nvml);
  nvml->library_.reset(::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (!nvml->library_) {
    note = "no NVIDIA driver (libnvidia-ml.so.1 is not there)";
    return nullptr;
  }
  nvml->find_all();
  if (!nvml->init_ || !nvml->count || !nvml->handle) {
    note =
        "libnvidia-ml.so.1 lacks a function that every NVML has; is it another file?";
    return nullptr;
  }
  if (const int code = nvml->init_(); code != kNvmlSuccess) {
    note = str("NVML does not start: ", nvml->error_text(code));
    return nullptr;
  }
  nvml->started_ = true;
  return nvml;
}

Nvml::~Nvml() {
  if (started_) shutdown_();
}

std::string Nvml::error_text(int code) const {
  const char* text = error_string_ == nullptr ? nullptr : error_string_(code);
  return text == nullptr ? str("error ", code) : text;
}

void Nvml::find_all() {
  void* const from = library_.get();
  find(from, init_, "nvmlInit_v2", "nvmlInit");
  find(from, shutdown_, "nvmlShutdown");
  error_string_ =
      reinterpret_cast<const char* (*)(int)>(::dlsym(from, "nvmlErrorString"));
  find(from, driver_version, "nvmlSystemGetDriverVersion");
  find(from, cuda_version, "nvmlSystemGetCudaDriverVersion_v2",
       "nvmlSystemGetCudaDriverVersion");
  find(from, count, "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount");
  find(from, handle, "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex");
  find(from, name, "nvmlDeviceGetName");
  find(from, uuid, "nvmlDeviceGetUUID");
  find(from, pci, "nvmlDeviceGetPciInfo_v3");
  find(from, memory, "nvmlDeviceGetMemoryInfo");
  find(from, memory_v2, "nvmlDeviceGetMemoryInfo_v2");
  find(from, capability, "nvmlDeviceGetCudaComputeCapability");
  find(from, bus_width, "nvmlDeviceGetMemoryBusWidth");
  find(from, persistence, "nvmlDeviceGetPersistenceMode");
  find(from, compute_mode, "nvmlDeviceGetComputeMode");
  find(from, ecc_mode, "nvmlDeviceGetEccMode");
  find(from, mig_mode, "nvmlDeviceGetMigMode");
  find(from, mig_capacity, "nvmlDeviceGetMaxMigDeviceCount");
  find(from, mig_handle, "nvmlDeviceGetMigDeviceHandleByIndex");
  find_status();
  find_links();
}

void Nvml::find_status() {
  void* const from = library_.get();
  find(from, utilization, "nvmlDeviceGetUtilizationRates");
  find(from, temperature, "nvmlDeviceGetTemperature");
  find(from, temperature_threshold, "nvmlDeviceGetTemperatureThreshold");
  find(from, clock, "nvmlDeviceGetClockInfo");
  find(from, max_clock, "nvmlDeviceGetMaxClockInfo");
  find(from, power, "nvmlDeviceGetPowerUsage");
  find(from, power_limit, "nvmlDeviceGetEnforcedPowerLimit");
  find(from, energy, "nvmlDeviceGetTotalEnergyConsumption");
  find(from, throttle_reasons, "nvmlDeviceGetCurrentClocksEventReasons",
       "nvmlDeviceGetCurrentClocksThrottleReasons");
  find(from, ecc_errors, "nvmlDeviceGetTotalEccErrors");
  find(from, remapped_rows, "nvmlDeviceGetRemappedRows");
  // The first version has another struct: without the others there is no list.
  find(from, compute_processes, "nvmlDeviceGetComputeRunningProcesses_v3",
       "nvmlDeviceGetComputeRunningProcesses_v2");
  find(from, graphics_processes, "nvmlDeviceGetGraphicsRunningProcesses_v3",
       "nvmlDeviceGetGraphicsRunningProcesses_v2");
}

void Nvml::find_links() {
  void* const from = library_.get();
  find(from, pcie_generation, "nvmlDeviceGetCurrPcieLinkGeneration");
  find(from, pcie_width, "nvmlDeviceGetCurrPcieLinkWidth");
  find(from, max_pcie_generation, "nvmlDeviceGetMaxPcieLinkGeneration");
  find(from, max_pcie_width, "nvmlDeviceGetMaxPcieLinkWidth");
  find(from, pcie_replays, "nvmlDeviceGetPcieReplayCounter");
  find(from, nvlink_state, "nvmlDeviceGetNvLinkState");
  find(from, nvlink_version, "nvmlDeviceGetNvLinkVersion");
  find(from, nvlink_remote_type, "nvmlDeviceGetNvLinkRemoteDeviceType");
  find(from, nvlink_remote_pci, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
  find(from, field_values, "nvmlDeviceGetFieldValues");
  find(from, common_ancestor, "nvmlDeviceGetTopologyCommonAncestor");
  find(from, peer_status, "nvmlDeviceGetP2PStatus");
}

}  // namespace lockstep::hardware::detail
