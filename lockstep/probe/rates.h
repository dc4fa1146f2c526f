#pragma once

#include <cstdint>

#include <torch/torch.h>

#include "lockstep/hardware/measured.h"
#include "lockstep/probe/timing.h"

namespace lockstep::probe {

struct MatrixProduct {
  torch::Device device;
  torch::Dtype dtype;
  std::int64_t rows;
};

// Returns the multiplications and additions a second of the product of two square
// matrices, measured for so many seconds.
double matrix_flops(const MatrixProduct& product, double seconds);

// Measures the host's memory and cores, with as many threads as torch has: copies of
// memory (bytes read and written), products in fp32.
hardware::Measured measure_host(const Effort& effort);

// Measures one GPU: copies within its memory, from and to pinned memory of the host,
// products. Throws Fault::hardware if it is not there.
hardware::MeasuredGpu measure_gpu(int index, const Effort& effort);

}  // namespace lockstep::probe
