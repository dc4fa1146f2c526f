// A library with NVML's functions whose GPUs are made up. Compiled twice: with
// FAKE_OLD_DRIVER it lacks what came with later drivers.
#include "tests/hardware/fake_state.h"

namespace {

using fake::Json;
using Device = void*;

// Handles are numbers: 1, 2, ... for GPUs, 1001, 1002, ... for instances of the first.
const Json& gpu_of(Device device) {
  const auto number = reinterpret_cast<std::size_t>(device);
  const auto& gpus = fake::state().at("gpus");
  if (number < 1000) return gpus.at(number - 1);
  return gpus.at(number / 1000 - 1).at("mig").at("devices").at(number % 1000 - 1);
}

// What the file says this function fails with; all of a lost GPU fail.
int error_of(Device device, const char* function) {
  const auto& gpu = gpu_of(device);
  const auto errors = gpu.find("errors");
  if (errors == gpu.end()) return 0;
  for (const char* key : {function, "*"}) {
    if (const auto found = errors->find(key); found != errors->end()) return *found;
  }
  return 0;
}

// Runs `use` with the value of `key`, unless the function fails or there is none.
template <typename Use>
int with(Device device, const char* function, const char* key, const Use& use) {
  if (const int error = error_of(device, function)) return error;
  const auto& gpu = gpu_of(device);
  const auto found = gpu.find(key);
  if (found == gpu.end()) return fake::kNotSupported;
  return use(*found);
}

template <typename T>
int number(Device device, const char* function, const char* key, T* value) {
  return with(device, function, key, [&](const Json& json) {
    *value = json.get<T>();
    return 0;
  });
}

// The number at a place of a list.
template <typename T>
int element(Device device, const char* function, const char* key, std::size_t at,
            T* value) {
  return with(device, function, key, [&](const Json& json) {
    if (at >= json.size()) return fake::kNotSupported;
    *value = json.at(at).get<T>();
    return 0;
  });
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  return fake::state().value("init", 0);
}
int nvmlShutdown() {
  return 0;
}
const char* nvmlErrorString(int code) {
  if (code == 4) return "Insufficient Permissions";
  if (code == 9) return "Driver Not Loaded";
  if (code == 15) return "GPU is lost";
  return "Unknown Error";
}
int nvmlSystemGetDriverVersion(char* version, unsigned size) {
  return fake::copy(fake::state().value("driver", "580.82.07"), version, size);
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = fake::state().value("cuda", 13000);
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(fake::state().at("gpus").size());
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
  *device = reinterpret_cast<Device>(static_cast<std::size_t>(index) + 1);
  return error_of(*device, "nvmlDeviceGetHandleByIndex_v2");
}
int nvmlDeviceGetName(Device device, char* text, unsigned size) {
  return with(device, "nvmlDeviceGetName", "name",
              [&](const Json& json) { return fake::copy(json, text, size); });
}
int nvmlDeviceGetUUID(Device device, char* text, unsigned size) {
  return with(device, "nvmlDeviceGetUUID", "uuid",
              [&](const Json& json) { return fake::copy(json, text, size); });
}
int nvmlDeviceGetMemoryInfo(Device device, unsigned long long* total_free_used) {
  return with(device, "nvmlDeviceGetMemoryInfo", "memory", [&](const Json& json) {
    total_free_used[0] = json.at("total");
    total_free_used[2] = json.value("used", 0ULL) + json.value("reserved", 0ULL);
    total_free_used[1] = total_free_used[0] - total_free_used[2];
    return 0;
  });
}
int nvmlDeviceGetCudaComputeCapability(Device device, int* major, int* minor) {
  element(device, "nvmlDeviceGetCudaComputeCapability", "compute", 0, major);
  return element(device, "nvmlDeviceGetCudaComputeCapability", "compute", 1, minor);
}
int nvmlDeviceGetUtilizationRates(Device device, unsigned* gpu_memory) {
  element(device, "nvmlDeviceGetUtilizationRates", "utilization", 1, gpu_memory + 1);
  return element(device, "nvmlDeviceGetUtilizationRates", "utilization", 0, gpu_memory);
}
int nvmlDeviceGetTemperature(Device device, int, unsigned* value) {
  return number(device, "nvmlDeviceGetTemperature", "temperature", value);
}
int nvmlDeviceGetPowerUsage(Device device, unsigned* value) {
  return number(device, "nvmlDeviceGetPowerUsage", "power_mw", value);
}

#ifndef FAKE_OLD_DRIVER
// nvmlPciInfo_t: the old id, five numbers, and the id at byte 36.
int nvmlDeviceGetPciInfo_v3(Device device, char* info) {
  return with(device, "nvmlDeviceGetPciInfo_v3", "pci", [&](const Json& json) {
    return fake::copy(json, info + 16 + 5 * sizeof(unsigned), 32);
  });
}
// nvmlMemory_v2_t: version, total, reserved, free, used.
int nvmlDeviceGetMemoryInfo_v2(Device device, unsigned long long* info) {
  constexpr unsigned kVersion = 40 | 2 << 24;
  if (static_cast<unsigned>(info[0]) != kVersion) return 25;
  return with(device, "nvmlDeviceGetMemoryInfo_v2", "memory", [&](const Json& json) {
    info[1] = json.at("total");
    info[2] = json.value("reserved", 0ULL);
    info[4] = json.value("used", 0ULL);
    info[3] = info[1] - info[2] - info[4];
    return 0;
  });
}
int nvmlDeviceGetTemperatureThreshold(Device device, int, unsigned* value) {
  return number(device, "nvmlDeviceGetTemperatureThreshold", "slowdown", value);
}
int nvmlDeviceGetClockInfo(Device device, int type, unsigned* value) {
  return element(device, "nvmlDeviceGetClockInfo", "clocks",
                 static_cast<std::size_t>(type), value);
}
int nvmlDeviceGetMaxClockInfo(Device device, int type, unsigned* value) {
  return element(device, "nvmlDeviceGetMaxClockInfo", "max_clocks",
                 static_cast<std::size_t>(type), value);
}
int nvmlDeviceGetEnforcedPowerLimit(Device device, unsigned* value) {
  return number(device, "nvmlDeviceGetEnforcedPowerLimit", "power_limit_mw", value);
}
int nvmlDeviceGetTotalEnergyConsumption(Device device, unsigned long long* value) {
  return number(device, "nvmlDeviceGetTotalEnergyConsumption", "energy_mj", value);
}
int nvmlDeviceGetCurrentClocksEventReasons(Device device, unsigned long long* value) {
  return number(device, "nvmlDeviceGetCurrentClocksEventReasons", "throttle", value);
}
int nvmlDeviceGetMemoryBusWidth(Device device, unsigned* value) {
  return number(device, "nvmlDeviceGetMemoryBusWidth", "bus_width", value);
}
int nvmlDeviceGetPersistenceMode(Device device, unsigned* value) {
  return number(device, "nvmlDeviceGetPersistenceMode", "persistence", value);
}
int nvmlDeviceGetComputeMode(Device device, int* value) {
  return number(device, "nvmlDeviceGetComputeMode", "compute_mode", value);
}
int nvmlDeviceGetEccMode(Device device, unsigned* now, unsigned* pending) {
  *pending = 0;
  return element(device, "nvmlDeviceGetEccMode", "ecc", 0, now);
}
int nvmlDeviceGetTotalEccErrors(Device device, int type, int,
                                unsigned long long* value) {
  return element(device, "nvmlDeviceGetTotalEccErrors", "ecc",
                 static_cast<std::size_t>(type) + 1, value);
}
int nvmlDeviceGetRemappedRows(Device device, unsigned* corrected, unsigned* uncorrected,
                              unsigned* pending, unsigned* failed) {
  constexpr const char* kSelf = "nvmlDeviceGetRemappedRows";
  element(device, kSelf, "remapped", 1, uncorrected);
  element(device, kSelf, "remapped", 2, pending);
  element(device, kSelf, "remapped", 3, failed);
  return element(device, kSelf, "remapped", 0, corrected);
}
int nvmlDeviceGetCurrPcieLinkGeneration(Device device, unsigned* value) {
  return element(device, "nvmlDeviceGetCurrPcieLinkGeneration", "pcie", 0, value);
}
int nvmlDeviceGetCurrPcieLinkWidth(Device device, unsigned* value) {
  return element(device, "nvmlDeviceGetCurrPcieLinkWidth", "pcie", 1, value);
}
int nvmlDeviceGetMaxPcieLinkGeneration(Device device, unsigned* value) {
  return element(device, "nvmlDeviceGetMaxPcieLinkGeneration", "pcie", 2, value);
}
int nvmlDeviceGetMaxPcieLinkWidth(Device device, unsigned* value) {
  return element(device, "nvmlDeviceGetMaxPcieLinkWidth", "pcie", 3, value);
}
int nvmlDeviceGetPcieReplayCounter(Device device, unsigned* value) {
  return number(device, "nvmlDeviceGetPcieReplayCounter", "pcie_replays", value);
}
// A link is null (not active), the id of a GPU, or "switch:" and an id.
int nvmlDeviceGetNvLinkState(Device device, unsigned link, unsigned* active) {
  return with(device, "nvmlDeviceGetNvLinkState", "nvlinks", [&](const Json& json) {
    if (link >= json.size()) return 2;
    *active = json.at(link).is_null() ? 0 : 1;
    return 0;
  });
}
int nvmlDeviceGetNvLinkVersion(Device, unsigned, unsigned* version) {
  *version = 4;
  return 0;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(Device device, unsigned link, unsigned* type) {
  const std::string remote = gpu_of(device).at("nvlinks").at(link);
  *type = remote.rfind("switch:", 0) == 0 ? 2 : 0;
  return 0;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device device, unsigned link, char* info) {
  const std::string remote = gpu_of(device).at("nvlinks").at(link);
  return fake::copy(remote.substr(remote.rfind("switch:", 0) == 0 ? 7 : 0),
                    info + 16 + 5 * sizeof(unsigned), 32);
}
struct FakeField {
  unsigned field, scope;
  long long timestamp, latency;
  unsigned type;
  int result;
  unsigned long long value;
};
int nvmlDeviceGetFieldValues(Device device, int count, FakeField* fields) {
  for (int i = 0; i < count; ++i) {
    fields[i].result = element(device, "nvmlDeviceGetFieldValues", "nvlink_kib",
                               fields[i].field - 138, &fields[i].value);
  }
  return 0;
}
struct FakeProcess {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};
int nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned* count,
                                            FakeProcess* list) {
  return with(device, "nvmlDeviceGetComputeRunningProcesses_v3", "processes",
              [&](const Json& json) {
                const unsigned room = *count;
                *count = static_cast<unsigned>(json.size());
                if (room < *count) return fake::kTooSmall;
                for (unsigned i = 0; i < *count; ++i) {
                  list[i].pid = json.at(i).at("pid");
                  list[i].used = json.at(i).value("memory", ~0ULL);
                }
                return 0;
              });
}
int nvmlDeviceGetTopologyCommonAncestor(Device one, Device other, int* level) {
  const auto& matrix = fake::state();
  if (!matrix.contains("topology")) return fake::kNotSupported;
  *level = matrix.at("topology")
               .at(reinterpret_cast<std::size_t>(one) - 1)
               .at(reinterpret_cast<std::size_t>(other) - 1);
  return 0;
}
int nvmlDeviceGetP2PStatus(Device, Device, int, int* status) {
  if (!fake::state().contains("peer_status")) return fake::kNotSupported;
  *status = fake::state().at("peer_status");
  return 0;
}
int nvmlDeviceGetMigMode(Device device, unsigned* now, unsigned* pending) {
  *pending = 0;
  return with(device, "nvmlDeviceGetMigMode", "mig", [&](const Json& json) {
    *now = json.at("mode");
    return 0;
  });
}
int nvmlDeviceGetMaxMigDeviceCount(Device device, unsigned* count) {
  return with(device, "nvmlDeviceGetMaxMigDeviceCount", "mig", [&](const Json&) {
    *count = 7;
    return 0;
  });
}
int nvmlDeviceGetMigDeviceHandleByIndex(Device device, unsigned index, Device* mig) {
  return with(
      device, "nvmlDeviceGetMigDeviceHandleByIndex", "mig", [&](const Json& json) {
        const auto& all = json.at("devices");
        if (index >= all.size() || all.at(index).is_null()) return 6;
        *mig = reinterpret_cast<Device>(reinterpret_cast<std::size_t>(device) * 1000 +
                                        index + 1);
        return 0;
      });
}
#endif

}  // extern "C"
