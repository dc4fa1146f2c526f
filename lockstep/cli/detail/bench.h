#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/cli/command.h"
#include "lockstep/hardware/machine.h"
#include "lockstep/jobs/trial.h"
#include "lockstep/monitor/timeline.h"

// `lockstep bench`: how fast a recipe is with several strategies and numbers of ranks.
namespace lockstep::cli {

struct BenchCase {
  config::Strategy strategy = config::Strategy::single;
  int ranks = 1;
  int zero_stage = 0;  // of zero

  std::string name() const;  // "zero2"
  std::string id() const;    // "ddp_2"
  std::string text() const;  // "ddp with 2 ranks"
};

struct BenchRequest {
  std::vector<BenchCase> cases;
  std::vector<std::string> left_out;  // a sentence for each that makes no sense
  std::int64_t steps = 20;            // that are timed
  std::int64_t warmup = 5;            // before them

  std::int64_t all_steps() const { return warmup + steps; }
};

BenchRequest bench_request(const Arguments& arguments);

// The numbers of one case.
struct BenchRow {
  BenchCase which;
  std::string error;  // why there are no numbers; "": there are
  std::string device;
  std::int64_t global_batch = 0;
  int threads = 0;          // of each rank
  double step_seconds = 0;  // the median; of each step the slowest rank
  double samples_per_second = 0;
  // On a CPU: seconds of all ranks, over those that all cores of the machine had. On a
  // GPU: the share of the time in which it had work (hardware::GpuUse).
  std::optional<double> busy;
  std::vector<std::int64_t> peak_memory_bytes;  // by rank
  monitor::PhaseSplit split;
  std::optional<double> efficiency;  // samples/s of a rank, relative to one rank alone
};

// Makes the recipe short, with everything off that is no training. Throws Fault::config
// for a knob that was typed and decides what is compared.
std::vector<planner::Choice> shorten(config::Loaded& wanted,
                                     const BenchRequest& request);

// What all cases share.
struct BenchInputs {
  const config::Loaded& wanted;
  const hardware::Machine& machine;
  const planner::Knowledge& knowledge;
};

// Returns the plan of one case; throws what the planner refuses.
planner::Plan bench_plan(const BenchCase& which, const BenchInputs& inputs);

// What was seen of one case.
struct BenchTrace {
  const planner::Plan& plan;
  const monitor::Timeline& timeline;
  int cores = 1;  // of the machine
};

// Returns median, rate, memory and split; `busy` of a GPU is left out.
BenchRow measured(const BenchCase& which, const BenchTrace& trace);

// Computes it against one rank of the same strategy, or of another if that was not run.
void add_efficiency(std::vector<BenchRow>& rows);

std::string bench_text(const std::vector<BenchRow>& rows, const BenchRequest& request);
std::string bench_json(const std::vector<BenchRow>& rows, const BenchRequest& request,
                       const std::string& directory);

}  // namespace lockstep::cli
