#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/models/model.h"

namespace lockstep::models {

// One layer that has parameters.
struct LayerSummary {
  std::string name;
  std::string type;
  std::int64_t num_parameters = 0;
  std::int64_t num_trainable = 0;
  std::int64_t num_bytes = 0;
};

// Returns the layers in the order of registration.
std::vector<LayerSummary> summarize(const torch::nn::Module& model);

}  // namespace lockstep::models
