#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <torch/torch.h>

#include "lockstep/config/optim.h"
#include "lockstep/kernels/update.h"
#include "lockstep/optim/state.h"

namespace lockstep::optim {

// Options of the elements [begin, end) of a flat buffer; what no range names is left
// alone. Ranges are in order and do not overlap. How they are cut changes no bit of the
// result; cuts at multiples of 16 elements, where parameters start, keep a GPU fast.
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

// Elements that have seen so many steps fewer than were made.
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
  // Of parameters that nobody used: they stay as they are, with what is remembered of
  // them, and the step does not count for them. In order, without overlap; cuts as
  // those of ranges.
  std::vector<Elements> unused = {};
};

// Of a step that a CUDA graph holds: what a host would say is read on the device, at
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
// Values are float32, float64 or bfloat16; of bfloat16 it keeps float32 copies, which
// are what it changes, and rounds them. Gradients have the dtype of the values, or are
// float32.
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

  // The same in three parts, for a step that is held by a CUDA graph: its numbers, if
  // it is made when `later` more have been counted; its launches, which a graph
  // captures; and that it was made. use_all() comes first: all parameters are used. It
  // returns another number than before when what launch() reads lies elsewhere now.
  virtual std::int64_t use_all() = 0;
  virtual std::vector<kernels::Hyper> hypers(const StepArguments& arguments,
                                             int later) const = 0;
  virtual void launch(torch::Tensor& values, const torch::Tensor& gradients,
                      const HeldArguments& arguments) = 0;
  virtual void count_step() = 0;

  // Everything a checkpoint has to hold, by name: what is remembered of each element
  // has one dimension, a single number has none. The tensors are the optimizer's own,
  // but for kBehind, whose rows are behind(), if there are any.
  virtual NamedTensors state() const = 0;
  // Takes over values of the same names and shapes; Fault::config if they differ.
  virtual void load(const NamedTensors& state) = 0;

  // Which elements have seen fewer steps than state() says: they were unused. In order.
  // Empty for a rule that does not count steps.
  virtual const std::vector<Behind>& behind() const = 0;
  virtual void set_behind(std::vector<Behind> behind) = 0;

  // The parameters have moved within the buffer.
  virtual void set_options(std::vector<OptionRange> ranges) = 0;
  // Somebody else has set the values: the float32 copies follow them.
  virtual void refresh(const torch::Tensor& values) = 0;
  // The weights in full precision: the float32 copies, or `values` itself.
  virtual torch::Tensor weights(const torch::Tensor& values) const = 0;
};

// The optimizer of a recipe for flat buffers like `values`.
std::unique_ptr<Optimizer> make_optimizer(const config::OptimConfig& config,
                                          const torch::Tensor& values,
                                          std::vector<OptionRange> ranges);
// With the recipe's weight decay for every element.
std::unique_ptr<Optimizer> make_optimizer(const config::OptimConfig& config,
                                          const torch::Tensor& values);

std::unique_ptr<Optimizer> make_adam(const config::OptimConfig& config,
                                     const torch::Tensor& values,
                                     std::vector<OptionRange> ranges);
std::unique_ptr<Optimizer> make_lion(const config::OptimConfig& config,
                                     const torch::Tensor& values,
                                     std::vector<OptionRange> ranges);
std::unique_ptr<Optimizer> make_sgd(const config::OptimConfig& config,
                                    const torch::Tensor& values,
                                    std::vector<OptionRange> ranges);

}  // namespace lockstep::optim
