#pragma once

#include <cstdint>

// One step of an optimizer over flat buffers: the arguments of the fused update,
// without tensors, so that host and device code share them.
namespace lockstep::kernels {

// The rule by which an element follows its gradient; the formulas are in
// detail/rules.h.
enum class Rule { sgd, momentum, nesterov, adam, adamw, lion };

// The storage of weights and gradients in memory. Arithmetic, state and the weights
// that the rule changes are float, or double in f64; `bf16` and `f16` keep a rounded
// copy of the weights.
enum class Storage {
  f32,
  f64,
  bf16,
  bf16_with_f32_gradients,
  f16,
  f16_with_f32_gradients
};

// Elements that share their options. One thread of a CPU, or one block of threads of a
// GPU, works off one chunk.
struct Chunk {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  double lr_scale = 1;
  double weight_decay = 0;
};
inline constexpr std::int64_t kHostChunk = 32768;
inline constexpr std::int64_t kDeviceChunk = 4096;

// The hyperparameters that all elements share in a step.
struct Hyper {
  double lr = 0;
  double beta1 = 0;  // the momentum of sgd
  double beta2 = 0;
  double eps = 0;
  double bias1 = 1;  // 1 - beta1^step
  double bias2 = 1;  // 1 - beta2^step
  double gradient_scale = 1;
  double clip_value = 0;  // of the scaled gradient; 0: off
};

struct UpdateArgs {
  Rule rule = Rule::sgd;
  Storage storage = Storage::f32;
  void* weights = nullptr;
  std::uint16_t* rounded = nullptr;  // the copy of 16 bits, or null
  const void* gradients = nullptr;
  void* first = nullptr;          // momentum or mean, or null
  void* second = nullptr;         // mean of squares, or null
  const Chunk* chunks = nullptr;  // where the weights are: host or device
  std::int64_t num_chunks = 0;
  const double* factor = nullptr;  // multiplies gradient_scale; host or device, or null
  const double* skip = nullptr;    // if it is not 0, nothing changes; where they are
  const Hyper* hyper_at = nullptr;  // where they are; else `hyper` holds
  Hyper hyper;
};

class Workers;

// Updates on the CPU, over the threads of `workers`. Every operation rounds once, in
// the order of the formulas, whatever the instruction set: the split into chunks or
// over threads does not change a bit.
void update_cpu(const UpdateArgs& update, Workers& workers);

}  // namespace lockstep::kernels
