#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "lockstep/checkpoint/pieces.h"
#include "lockstep/comm/join.h"
#include "lockstep/train/step.h"

namespace lockstep::train {

// The part of a checkpoint that is one rank's: the states of torch's generators, and
// the sums since the last report. A run with as many ranks resumes with them.
class RankState {
 public:
  explicit RankState(const comm::World& world) : rank_(world.rank()) {}

  // Takes the current state.
  void refresh(task::Tally& tally, const torch::Device& device);
  // Keeps the current sums, whatever becomes of the tally: a run that is resumed does
  // not have the report that only the end of a run asks for.
  void hold_sums(task::Tally& tally);
  checkpoint::Pieces pieces() const;
  // Call it after the pieces were filled.
  void apply(task::Tally& tally, const torch::Device& device) const;

 private:
  int rank_;
  torch::Tensor host_draws_, device_draws_;  // states of generators
  torch::Tensor sums_, count_;
  bool holds_ = false;
};

// The numbers that a part of training keeps, as tensors; JSON has them as doubles.
using NumberTensors = std::vector<std::pair<std::string, torch::Tensor>>;
std::map<std::string, double> numbers_of(const NumberTensors& tensors);
NumberTensors tensors_of(const std::map<std::string, double>& numbers);

}  // namespace lockstep::train
