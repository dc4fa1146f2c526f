#include "lockstep/models/out_of_memory.h"

#include <new>
#include <string_view>

#include <c10/util/Exception.h>

namespace lockstep::models {

bool is_out_of_memory(const std::exception& error) noexcept {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return true;
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
  const std::string_view text = error.what();
  // LibTorch's host allocator, cuBLAS and cuDNN have no type for it; the last one is
  // memory::HostMemoryLimit's.
  for (const std::string_view sign :
       {"DefaultCPUAllocator: can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED",
        "CUDNN_STATUS_ALLOC_FAILED", "CUDA out of memory", "out of memory",
        "bytes of memory.host_limit"}) {
    if (text.find(sign) != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace lockstep::models
