#pragma once

#include <cstdint>
#include <vector>

#include <torch/torch.h>

#include "lockstep/hardware/gpu_check.h"
#include "lockstep/probe/transfer.h"

namespace lockstep::probe {

struct VerifyOptions {
  std::int64_t memory_bytes = 1 << 30;  // that patterns are written to
  std::int64_t rows = 2048;             // of the matrices, a multiple of 4
  Damage damage = {};                   // for tests
};

// Checks that the device computes known results, keeps its memory, and repeats itself:
// products of matrices whose every value is known exactly, in fp32 and bf16; patterns
// and their inverse in memory; a product and a sum of arbitrary numbers twice, to the
// last bit. A step that throws has failed with that text.
std::vector<hardware::GpuCheckStep> verify(const torch::Device& device,
                                           const VerifyOptions& options);

}  // namespace lockstep::probe
