#pragma once

#include <string>
#include <vector>

#include "lockstep/hardware/machine.h"
#include "lockstep/planner/cost.h"

// The accuracy of predictions: kept per machine and model, and used for the next one.
namespace lockstep::planner {

// A run that came to its end.
struct Past {
  std::string model;   // learnt_as(): sizes of one model err alike
  std::string device;  // kind_of_memory()
  std::string date;    // "2026-11-15"
  int ranks = 1;
  std::int64_t micro = 1;
  bool host_bound = false;       // it was predicted so: the times are of launching
  double predicted_seconds = 0;  // of a step, without any correction
  double measured_seconds = 0;
  double predicted_bytes = 0;  // tensors of a rank, without any correction
  double measured_bytes = 0;   // of a GPU: tensors; of a CPU: the process
};

// Returns what is measured of a run's memory: "cuda", "cpu" (the process), or
// "cpu_tensors" (memory.host_limit counts them).
std::string kind_of_memory(const config::Config& config,
                           const hardware::Machine& machine);

// Returns the name under which runs teach: the model's, and another one where it
// computes its gradients itself, which takes other times and another memory.
std::string learnt_as(const run::ModelDescription& model, config::Config config,
                      const hardware::Machine& machine);

std::string to_json(const std::vector<Past>& runs);
// A damaged or newer file counts as empty: it is not worth a run.
std::vector<Past> past_from_json(const std::string& text);

// The last few runs of each model, bound by the host or not, are kept.
void remember(std::vector<Past>& runs, const Past& run);

// Computes it from the runs of this model on this device; none if there are no runs.
// The factor is the median of the ratios, the spread the largest distance from it.
Correction estimate_correction(const std::vector<Past>& runs, const std::string& model,
                               const std::string& device);

}  // namespace lockstep::planner
