#include "lockstep/kernels/huge_pages.h"

#include <cstdint>

#include <sys/mman.h>

namespace lockstep::kernels {

void use_huge_pages(const torch::Tensor& untouched) {
  constexpr std::uintptr_t kPage = 2 << 20;
  constexpr std::uintptr_t kFew = 4;
  if (!untouched.device().is_cpu() || untouched.nbytes() < kFew * kPage) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(untouched.const_data_ptr());
  const auto first = (begin + kPage - 1) / kPage * kPage;
  const auto end = (begin + untouched.nbytes()) / kPage * kPage;
  // Where the kernel does not know it, everything works as before.
  madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
}

}  // namespace lockstep::kernels
