#include "lockstep/base/error.h"
#include "lockstep/memory/device_memory.h"

namespace lockstep::memory {

void limit_device_memory(const torch::Device& device, double) {
  throw Error(Fault::hardware, "train: this build has no CUDA, so there is no ",
              device);
}

}  // namespace lockstep::memory
