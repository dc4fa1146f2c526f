#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/named.h"
#include "lockstep/task/task.h"

namespace lockstep::inference {

// What a model says of one sample.
struct SamplePrediction {
  // Of a classifier: the likeliest class, and the probability of each.
  std::optional<std::int64_t> class_index;
  // Of a classifier each class's, of several labels each label's.
  std::vector<double> probabilities;
  // Of any other task: the outputs as they are, by name.
  std::vector<std::pair<std::string, std::vector<double>>> outputs;
};

// Returns what the outputs of a batch say of each of its samples. Throws Fault::config
// for a task whose outputs are no prediction of a sample (language_model).
std::vector<SamplePrediction> predictions_of(const task::Task& task,
                                             const Named& outputs);

}  // namespace lockstep::inference
