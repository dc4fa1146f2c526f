#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "lockstep/comm/join.h"
#include "lockstep/config/config.h"
#include "lockstep/data/dataset.h"
#include "lockstep/inference/prediction.h"
#include "lockstep/task/tally.h"
#include "lockstep/train/build.h"

namespace lockstep::inference {

// A model that was trained, on one device of this process, with the data and the task
// of its recipe.
//
// Threads: one.
class Trained {
 public:
  // Loads the weights that `model.weights` (and `lora.weights`) name. REQUIRES: no auto
  // is left in the config. Throws as opening the data and building the model do.
  explicit Trained(const config::Config& config);

  // Returns the samples that the recipe evaluates on.
  const data::Dataset& eval_data() const { return *shared_->eval_data; }

  // Returns the means of losses and metrics over the evaluation's samples, each counted
  // once, as an evaluation of the run would.
  task::Means evaluate();

  // Calls `take` with what the model says of each sample, in the order of the data set,
  // which is laid out as eval_data().
  using Take = std::function<void(std::int64_t index, const SamplePrediction&)>;
  void predict(const data::Dataset& samples, const Take& take);

  // Writes the model as a TorchScript program (models/script.h), tried on the first
  // samples of the evaluation, and returns the notes that are kept in it. REQUIRES: the
  // device is the CPU. Throws Fault::config for a model that can not be written so.
  std::string write_script(const std::filesystem::path& path);

 private:
  config::Config config_;
  comm::World world_;
  std::unique_ptr<train::Shared> shared_;
  train::Built built_;
};

}  // namespace lockstep::inference
