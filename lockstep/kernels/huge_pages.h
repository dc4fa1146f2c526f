#pragma once

#include <torch/torch.h>

namespace lockstep::kernels {

// Asks for large pages for a tensor of the CPU whose memory has not been touched yet:
// walking through it then misses the address cache far less often. Does nothing to
// tensors on other devices or smaller than a few such pages.
void use_huge_pages(const torch::Tensor& untouched);

}  // namespace lockstep::kernels
