// A library with NVML's functions and two made-up GPUs. FAKE_NVML_INIT is what
// nvmlInit_v2 returns.
#include <cstdlib>
#include <cstring>

namespace {

struct FakeGpu {
  const char* name;
  const char* uuid;
  unsigned long long memory_bytes;
  int major, minor;
};

FakeGpu gpus[] = {
    {"Example H200", "GPU-aaaa-1111", 150'000'000'000ULL, 9, 0},  // NOLINT
    {"Example V100", "GPU-bbbb-2222", 16'000'000'000ULL, 7, 0}};

int copy(const char* from, char* to, unsigned size) {
  if (std::strlen(from) >= size) return 7;  // insufficient size
  std::strcpy(to, from);                    // NOLINT: checked above
  return 0;
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  const char* result = std::getenv("FAKE_NVML_INIT");
  return result == nullptr ? 0 : std::atoi(result);
}
int nvmlShutdown() {
  return 0;
}
const char* nvmlErrorString(int) {
  return "Driver Not Loaded";
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = &gpus[index];
  return 0;
}
int nvmlDeviceGetName(void* device, char* name, unsigned size) {
  return copy(static_cast<FakeGpu*>(device)->name, name, size);
}
int nvmlDeviceGetUUID(void* device, char* uuid, unsigned size) {
  return copy(static_cast<FakeGpu*>(device)->uuid, uuid, size);
}
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* total_free_used) {
  total_free_used[0] = static_cast<FakeGpu*>(device)->memory_bytes;
  return 0;
}
int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
  *major = static_cast<FakeGpu*>(device)->major;
  *minor = static_cast<FakeGpu*>(device)->minor;
  return 0;
}
// nvmlPciInfo_t: the old id, five numbers, and the id at byte 36.
int nvmlDeviceGetPciInfo_v3(void* device, char* info) {
  return copy(device == &gpus[0] ? "00000000:3B:00.0" : "00010000:AF:00.0",
              info + 16 + 5 * sizeof(unsigned), 32);
}
int nvmlDeviceGetUtilizationRates(void* device, unsigned* gpu_and_memory) {
  gpu_and_memory[0] = device == &gpus[0] ? 75 : 25;
  return 0;
}
int nvmlSystemGetDriverVersion(char* version, unsigned size) {
  return copy("580.82.07", version, size);
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 13000;
  return 0;
}

}  // extern "C"
