#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <torch/torch.h>

#include "lockstep/config/optim.h"
#include "lockstep/kernels/update.h"
#include "lockstep/optim/state.h"

namespace lockstep::optim {

// Options of the elements [begin, end) of a flat buffer; elements that no range names
// are left alone. Ranges are in order and do not overlap. Their cuts change no bit of
// the result; cuts at multiples of 16 elements, where parameters start, keep a GPU
// fast.
struct OptionRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  double lr_scale = 1;
  double weight_decay = 0;
};

// A piece of a flat buffer.
struct Elements {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  friend bool operator==(const Elements&, const Elements&) = default;
};

// Elements that have seen fewer steps than were made.
struct Behind {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t steps = 0;

  friend bool operator==(const Behind&, const Behind&) = default;
};

struct StepArguments {
  double lr = 0;
  // The gradients are multiplied by gradient_scale and, where it is defined, by
  // `factor` (no dimension, float64, where the values are: nothing waits for it).
  double gradient_scale = 1;
  torch::Tensor factor = {};
  // Then each is kept within -clip_value and clip_value; 0: it is not.
  double clip_value = 0;
  // The elements of unused parameters: they stay as they are, with their state, and the
  // step does not count for them. They are in order, without overlap; cuts as those of
  // ranges.
  std::vector<Elements> unused = {};
};

// The arguments of a step that a CUDA graph holds: they are read on the device, at
// every replay.
struct HeldArguments {
  const kernels::Hyper* hypers = nullptr;  // as Optimizer::hypers() gives them
  const double* factor = nullptr;          // as StepArguments::factor; may be null
  const double* skip = nullptr;            // if it is not 0, nothing changes; or null
};

inline constexpr const char* kBehind = "behind";

// Changes parameters by their gradients: one fused operation over flat buffers; one for
// each number of steps where parameters have seen different ones.
//
// Values are float32, float64, bfloat16 or float16; for the last two it keeps float32
// copies, updates these, and rounds them. Gradients have the dtype of the values, or
// are float32.
//
// Threads: one at a time. Stream: the current one; waits for nothing.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // `values` and `gradients` have the size of the constructor's values.
  virtual void step(torch::Tensor& values, const torch::Tensor& gradients,
                    const StepArguments& arguments) = 0;
  void step(torch::Tensor& values, const torch::Tensor& gradients, double lr) {
    step(values, gradients, StepArguments{.lr = lr});
  }

  // step() in three parts, for a step that is held by a CUDA graph: hypers() returns
  // its numbers, if it is made when `later` more have been counted; a graph captures
  // launch(); count_step() records the step. use_all() comes first: all parameters are
  // used. It returns another number than before when the memory that launch() reads has
  // moved.
  virtual std::int64_t use_all() = 0;
  virtual std::vector<kernels::Hyper> hypers(const StepArguments& arguments,
                                             int later) const = 0;
  virtual void launch(torch::Tensor& values, const torch::Tensor& gradients,
                      const HeldArguments& arguments) = 0;
  virtual void count_step() = 0;

  // Returns everything that a checkpoint has to hold, by name: the state of each
  // element has one dimension, a single number has none. The tensors are the
  // optimizer's own, but for kBehind, whose rows are behind(), if there are any.
  virtual NamedTensors state() const = 0;
  // Takes over values of the same names and shapes; Fault::config if they differ.
  virtual void load(const NamedTensors& state) = 0;

  // Returns the elements that have seen fewer steps than state() says, in order: they
  // were unused. Empty for a rule that does not count steps.
  virtual const std::vector<Behind>& behind() const = 0;
  virtual void set_behind(std::vector<Behind> behind) = 0;

  // To be called when the parameters have moved within the buffer.
  virtual void set_options(std::vector<OptionRange> ranges) = 0;
  // To be called when a caller has set the values: the float32 copies follow them.
  virtual void refresh(const torch::Tensor& values) = 0;
  // Returns the weights in full precision: the float32 copies, or `values` itself.
  virtual torch::Tensor weights(const torch::Tensor& values) const = 0;
};

// Makes the optimizer of a recipe for flat buffers like `values`.
std::unique_ptr<Optimizer> make_optimizer(const config::OptimConfig& config,
                                          const torch::Tensor& values,
                                          std::vector<OptionRange> ranges);
// Applies the recipe's weight decay to every element.
std::unique_ptr<Optimizer> make_optimizer(const config::OptimConfig& config,
                                          const torch::Tensor& values);

}  // namespace lockstep::optim
