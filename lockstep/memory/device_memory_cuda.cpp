#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include "lockstep/memory/device_memory.h"

namespace lockstep::memory {

void limit_device_memory(const torch::Device& device, double fraction) {
  at::globalContext().lazyInitDevice(device.type());  // there is no allocator before
  c10::cuda::CUDACachingAllocator::setMemoryFraction(fraction, device.index());
}

}  // namespace lockstep::memory
