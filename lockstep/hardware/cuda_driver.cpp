// The only file that knows libcuda: it tells what NVML does not, and CUDA's own order
// of the devices. Found at run time, like NVML.
#include "lockstep/hardware/detail/cuda_driver.h"

#include <array>

#include <dlfcn.h>

#include "lockstep/hardware/detail/nvml.h"

namespace lockstep::hardware::detail {
namespace {

using Uuid = std::array<unsigned char, 16>;

struct Functions {
  int (*init)(unsigned) = nullptr;
  int (*count)(int*) = nullptr;
  int (*get)(int*, int) = nullptr;
  int (*uuid)(Uuid*, int) = nullptr;
  int (*attribute)(int*, int, int) = nullptr;
};

template <typename Function>
bool find(void* library, Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  return function != nullptr;
}

bool find_all(void* library, Functions& cuda) {
  // Only the second version knows instances of a GPU.
  const bool uuid = find(library, cuda.uuid, "cuDeviceGetUuid_v2") ||
                    find(library, cuda.uuid, "cuDeviceGetUuid");
  return uuid && find(library, cuda.init, "cuInit") &&
         find(library, cuda.count, "cuDeviceGetCount") &&
         find(library, cuda.get, "cuDeviceGet") &&
         find(library, cuda.attribute, "cuDeviceGetAttribute");
}

std::string text_of(const Uuid& uuid) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kDigits[uuid[i] >> 4];
    text += kDigits[uuid[i] & 15];
  }
  return text;
}

CudaDevice describe(const Functions& cuda, int device) {
  const auto attribute = [&](int number) -> std::optional<int> {
    int value = 0;
    if (cuda.attribute(&value, number, device) != 0) return std::nullopt;
    return value;
  };
  CudaDevice result;
  Uuid uuid{};
  if (cuda.uuid(&uuid, device) == 0) result.uuid = text_of(uuid);
  // The numbers are CUdevice_attribute's.
  result.max_threads_per_block = attribute(1);
  result.multiprocessors = attribute(16);
  result.memory_bus_bits = attribute(37);
  result.l2_bytes = attribute(38);
  result.max_threads_per_multiprocessor = attribute(39);
  result.shared_memory_per_multiprocessor_bytes = attribute(81);
  // Attribute 97 is the most that a kernel may ask for, 8 the default.
  const auto on_request = attribute(97);
  result.shared_memory_per_block_bytes = on_request ? on_request : attribute(8);
  return result;
}

}  // namespace

std::string bare_uuid(const std::string& uuid) {
  return uuid.substr(uuid.find('-') + 1);
}

std::optional<std::vector<CudaDevice>> cuda_devices(const Path& root) {
  const Library library(
      ::dlopen(nvidia_library(root, "libcuda.so.1").c_str(), RTLD_NOW | RTLD_LOCAL));
  Functions cuda;
  if (!library || !find_all(library.get(), cuda)) return std::nullopt;
  int count = 0;
  if (cuda.init(0) != 0 || cuda.count(&count) != 0) return std::nullopt;
  std::vector<CudaDevice> devices;
  for (int i = 0; i < count; ++i) {
    int device = 0;
    if (cuda.get(&device, i) == 0) devices.push_back(describe(cuda, device));
  }
  return devices;
}

}  // namespace lockstep::hardware::detail
