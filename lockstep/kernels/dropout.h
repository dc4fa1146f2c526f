#pragma once

#include <cstdint>

#include "lockstep/base/hash.h"

namespace at {
class Tensor;
}

// Dropout without a generator: whether an element is dropped depends on a key, the
// number of its sample and its place in the sample, and on nothing else. So the split
// of a batch into micro-batches does not matter, and nothing is kept for the backward
// pass, which drops the same elements of the gradient.
namespace lockstep::kernels {

enum class Number { f32, f64, bf16, f16 };

// The samples of a pass, in memory of the device: a CUDA graph that holds the pass
// reads it there at every replay.
struct PassPlace {
  std::uint64_t key = 0;
  std::int64_t first_sample = 0;
};

struct Dropout {
  void* out = nullptr;
  const void* in = nullptr;
  Number number = Number::f32;
  std::int64_t num_samples = 0;
  std::int64_t sample_elements = 0;  // of one; samples stand one after the other
  std::int64_t first_sample = 0;
  std::uint64_t key = 0;
  const PassPlace* place = nullptr;   // on the device; instead of the two above
  std::uint64_t layer = 0, call = 0;  // with `place`: whose key it is
  std::uint32_t keep_below = 0;       // of 2^32: the chances below it are kept
  double scale = 1;                   // of the kept elements
};

class Workers;

void dropout_cpu(const Dropout& args, Workers* workers);

inline constexpr std::int64_t kDropoutBlock = 16384;  // elements of one piece of work

// Returns the key of the `call`-th time that a layer drops in a pass.
constexpr std::uint64_t key_of_call(std::uint64_t pass, std::uint64_t layer,
                                    std::uint64_t call) {
  return scramble(scramble(pass ^ layer) ^ call);
}

// The elements to drop of a tensor that holds `num_samples` samples, one after the
// other in memory; `first_sample` is the number of the first.
struct Drawn {
  std::uint64_t key = 0;
  std::int64_t first_sample = 0;
  std::int64_t num_samples = 0;
  double probability = 0;  // in (0, 1)
  // On the device, instead of the first two: key_of_call() of it, `layer` and `call`.
  const PassPlace* place = nullptr;
  std::uint64_t layer = 0, call = 0;
};

// REQUIRES: both dense, alike in shape, strides, dtype and device; num_samples divides
// the number of elements.
void dropout(at::Tensor& out, const at::Tensor& in, const Drawn& drawn);

}  // namespace lockstep::kernels
