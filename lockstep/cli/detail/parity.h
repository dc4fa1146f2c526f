#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/cli/command.h"
#include "lockstep/cli/detail/tensor_file.h"
#include "lockstep/jobs/trial.h"
#include "lockstep/launcher/job.h"
#include "lockstep/planner/plan.h"
#include "lockstep/run/trace.h"

// `lockstep parity`: the same training at several sizes, compared step by step.
namespace lockstep::cli {

// The exit status of the verdict FAIL; failed runs have other statuses.
inline constexpr int kExitDiffers = 8;

// The largest relative difference that passes: about the square root of what float64
// rounds by (2.2e-16). docs/parity.md has what was measured on both sides of it.
inline constexpr double kAllowed = 1e-8;

struct ParityRequest {
  std::vector<int> ranks;  // the sizes; the others are held against the first
  std::int64_t steps = 5;
  bool pytorch = false;
  std::string python;
  std::optional<run::Injection> injection;
};

ParityRequest parity_request(const Arguments& arguments, const Context& context);

struct ParityPlan {
  std::vector<planner::Plan> sizes;       // of ParityRequest::ranks
  std::vector<planner::Choice> settings;  // where it departs from the recipe, and why
};

// Plans the recipe at every size, with whatever would let the sizes differ made the
// same. Throws Fault::config for a knob that was typed and would, and where the planner
// refuses a size, naming it.
ParityPlan parity_plan(const ParityRequest& request, config::Loaded wanted,
                       const hardware::Machine& machine);

// A run that ended, and where its trace is.
struct ParityRun {
  std::string name;  // "2 ranks"
  int ranks = 0;     // that wrote hashes; 0: none did
  std::filesystem::path trace;
  launcher::JobResult result;
};

ParityRun run_size(const jobs::Trials& trials, const planner::Plan& plan,
                   const ParityRequest& request);

// Throws Fault::hardware unless `python` imports PyTorch, Fault::config for a model, or
// a knob that changes results, that the script has not. It has the rest of optim, model
// and data, or takes the values from the reference: weights at the start, samples as
// the model sees them, and learning rates.
void require_pytorch(const std::string& python, const config::Config& config);

// Runs the same training by PyTorch's own DDP, at the largest size, from the weights
// and the samples in the trace of `reference`.
struct PytorchTrial {
  const planner::Plan& plan;
  const ParityRequest& request;
  const ParityRun& reference;
};
ParityRun run_pytorch(const jobs::Trials& trials, const PytorchTrial& trial);

// The difference of tensors of a kind: the largest |a - b|, and the largest relative to
// the largest |a| of the tensor. Infinite where one is not finite, or missing.
struct Difference {
  double absolute = 0;
  double relative = 0;
  std::string where;  // the tensor with the largest relative one
};

struct StepDifference {
  std::int64_t step = 0;  // 0: the start
  double loss_reference = 0;
  double loss_other = 0;
  Difference loss, gradient, parameter;

  double largest() const;
};

struct Comparison {
  std::string name;
  std::string reference;
  std::vector<StepDifference> steps;
  int ranks = 0;
  std::string ranks_differ;  // where ranks of one run did not agree; "": they did

  const StepDifference& worst() const;
  bool passes() const;
};

Difference difference(const TensorFile& reference, const TensorFile& other,
                      std::string_view prefix);
// Throws Fault::io for a trace that is not whole.
Comparison compare(const ParityRun& reference, const ParityRun& other,
                   std::int64_t steps);
// Returns "" if all ranks of the run had the same parameters after every step.
std::string disagreement(const ParityRun& run, std::int64_t steps);

std::string parity_text(const std::vector<Comparison>& comparisons, bool color);
std::string parity_json(const std::vector<Comparison>& comparisons,
                        const ParityRequest& request);

}  // namespace lockstep::cli
