// The same machine as libcuda shows it: "cuda_order" of gpus.json names the UUIDs.
#include <array>
#include <cstdlib>

#include "tests/hardware/fake_state.h"

namespace {

using fake::Json;

const Json* device_with(const std::string& uuid) {
  for (const auto& gpu : fake::state().at("gpus")) {
    if (gpu.value("uuid", "") == uuid) return &gpu;
    if (!gpu.contains("mig")) continue;
    for (const auto& instance : gpu.at("mig").at("devices")) {
      if (instance.is_object() && instance.value("uuid", "") == uuid) return &instance;
    }
  }
  return nullptr;
}

}  // namespace

extern "C" {

int cuInit(unsigned) {
  return fake::state().contains("cuda_order") ? 0 : 100;
}
int cuDeviceGetCount(int* count) {
  *count = static_cast<int>(fake::state().at("cuda_order").size());
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return 0;
}
int cuDeviceGetUuid_v2(unsigned char* bytes, int device) {
  const std::string uuid = fake::state().at("cuda_order").at(device);
  std::string digits;
  for (const char c : uuid.substr(uuid.find('-') + 1)) {
    if (c != '-') digits += c;
  }
  for (std::size_t i = 0; i < 16; ++i) {
    bytes[i] = static_cast<unsigned char>(
        std::strtoul(digits.substr(2 * i, 2).c_str(), nullptr, 16));
  }
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  const auto* gpu = device_with(fake::state().at("cuda_order").at(device));
  if (gpu == nullptr || !gpu->contains("attributes")) return 1;
  const auto& all = gpu->at("attributes");
  const auto found = all.find(std::to_string(attribute));
  if (found == all.end()) return 1;
  *value = *found;
  return 0;
}

}  // extern "C"
