#include "lockstep/base/error.h"
#include "lockstep/train/device.h"

namespace lockstep::train {

void limit_device_memory(const torch::Device& device, double) {
  throw Error(Fault::hardware, "train: this build has no CUDA, so there is no ",
              device);
}

}  // namespace lockstep::train
