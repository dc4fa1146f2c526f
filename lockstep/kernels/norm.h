#pragma once

#include <cstdint>

// The sum of the squares of a flat buffer, in one order on every device: 32 sums run
// side by side over 4096 elements and are then added by halves; the results of these
// blocks are added in the same way, until one is left. So neither the number of threads
// nor the device changes a bit.
namespace lockstep::kernels {

inline constexpr std::int64_t kNormBlock = 4096;
inline constexpr int kNormLanes = 32;

enum class Element { f32, f64, bf16, f16 };

constexpr std::int64_t norm_blocks(std::int64_t num_elements) {
  return (num_elements + kNormBlock - 1) / kNormBlock;
}
// Returns the doubles that the sums of the blocks need, of all levels.
constexpr std::int64_t norm_workspace(std::int64_t num_elements) {
  std::int64_t total = 0;
  for (auto n = norm_blocks(num_elements); n > 1; n = norm_blocks(n)) total += n;
  return total;
}

struct SquaredNormArgs {
  const void* in = nullptr;
  Element element = Element::f32;
  std::int64_t num_elements = 0;
  double* workspace = nullptr;
  double* out = nullptr;
};

class Workers;

// `workers` is for norm_blocks(num_elements) items.
void squared_norm_cpu(const SquaredNormArgs& args, Workers& workers);

// Computes out[0] = norm = gradient_scale * sqrt(squared), out[1] = min(1, most / (norm
// + 1e-6)), or 1 if `most` is 0. The small number is PyTorch's: it saves a norm of 0.
struct ClipFactor {
  const double* squared = nullptr;
  double* out = nullptr;
  double gradient_scale = 1;
  const double* scale_at = nullptr;  // on the device; else gradient_scale holds
  double most = 0;
};
inline constexpr double kNormFloor = 1e-6;

}  // namespace lockstep::kernels
