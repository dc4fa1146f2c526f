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

// What a checkpoint holds of one rank only: where torch's generators are, and the sums
// since the last report. A run with as many ranks goes on with them.
class OwnState {
 public:
  explicit OwnState(const comm::World& world) : rank_(world.rank()) {}

  // As it is now.
  void refresh(Tally& tally, const torch::Device& device);
  // The sums stay those of now, whatever becomes of the tally: a report that only the
  // end of a run has asked for is none of a run that goes on.
  void hold_sums(Tally& tally);
  checkpoint::Pieces pieces() const;
  // After the pieces were filled.
  void apply(Tally& tally, const torch::Device& device) const;

 private:
  int rank_;
  torch::Tensor host_draws_, device_draws_;  // states of generators
  torch::Tensor sums_, count_;
  bool holds_ = false;
};

// Numbers that a part of training keeps, as it gives them and as JSON has them.
using NumberTensors = std::vector<std::pair<std::string, torch::Tensor>>;
std::map<std::string, double> numbers_of(const NumberTensors& tensors);
NumberTensors tensors_of(const std::map<std::string, double>& numbers);

}  // namespace lockstep::train
