#pragma once

#include <string>

#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/comm/join.h"
#include "lockstep/models/model.h"
#include "lockstep/parallel/strategy.h"
#include "lockstep/run/run_directory.h"
#include "lockstep/train/callback_calls.h"
#include "lockstep/train/report.h"

namespace lockstep::train {

// The files of weights that a run leaves beside its checkpoints, for other programs.
// Rank 0 writes what all ranks have.
class WeightFiles {
 public:
  struct Parts {
    const config::ModelConfig& model_config;
    const config::LoraConfig& lora;
    const run::RunDirectory& run;
    models::Model& model;
    parallel::Strategy& strategy;
    comm::World& world;
    Reporter& reporter;
    const CallbackCalls& callbacks;
    const RunState& state;
  };
  explicit WeightFiles(const Parts& parts) : parts_(parts) {}

  // Writes the weights as they are to a file of the run. Returns its path, "" on the
  // ranks that do not write.
  std::string write(const std::string& name);

  // Writes model.safetensors and, where there is one, the average of the weights. Of a
  // model with adapters these alone are written, as PEFT does, into the folders
  // "adapter" and "ema_adapter".
  void write_final(Result& result);

 private:
  checkpoint::WholeTensor whole_tensors() const;
  std::string write_adapter(const std::string& name);
  std::string write_either(const std::string& name);

  Parts parts_;
};

}  // namespace lockstep::train
