#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <torch/torch.h>

namespace lockstep::parallel {

struct Update;

// The interface of a strategy for a CUDA graph that holds its steps. Numbers that
// change with every step (the learning rate, the number of steps, the loss scale) are
// read on the device, where they are put before each replay.
//
// Collective: the launches, and hence the replays.
class HeldSteps {
 public:
  virtual ~HeldSteps() = default;

  // Returns why a graph can not hold its steps, as a clause; "" if it can.
  virtual std::string obstacle() const = 0;

  // Launches begin_step(), what `passes` launches (`number` of them), and finish(), on
  // the stream that is captured: nothing is timed then, and what is used is what the
  // graph will always use: Fault::config if that is not all. After one that throws, a
  // step may begin.
  virtual void launch_passes(const std::function<void()>& passes,
                             std::int64_t number) = 0;

  // Tells that the next update uses all parameters. Another number than before means
  // that what a graph holds of an update lies elsewhere now.
  virtual std::int64_t prepare_update() = 0;

  // Returns the numbers of the update, if it is made when `later` more have been
  // counted. Their number is always the same.
  virtual std::vector<double> numbers(const Update& wanted, int later) const = 0;

  // Launches the update, with these numbers on the device. With `skipped` (no
  // dimension, float64, on the device) it is set to 1 if the gradients are not finite,
  // and nothing is changed then, else to 0. Returns the norm of the gradients before
  // they were clipped, if it was needed.
  virtual torch::Tensor launch_update(const torch::Tensor& numbers,
                                      const torch::Tensor& skipped) = 0;

  // Counts an update that was launched and not skipped.
  virtual void count_update() = 0;

  // Returns the norm of the gradients, as Updated::norm, for a caller that wants it.
  virtual torch::Tensor norm(const Update& wanted) = 0;
};

}  // namespace lockstep::parallel
