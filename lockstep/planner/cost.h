#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/config/config.h"
#include "lockstep/hardware/machine.h"
#include "lockstep/run/model_description.h"

// The cost of a way of training: the arithmetic behind a plan. docs/planner.md has the
// formulas.
namespace lockstep::planner {

enum class Method { single, data_parallel, ddp, zero1, zero2, zero3 };
std::string_view name_of(Method method) noexcept;
// Return the method of a stage of zero, and the stage of a method; 0: it is none of
// zero's.
Method method_of_stage(int stage) noexcept;
int stage_of(Method method) noexcept;

struct Candidate {
  Method method = Method::single;
  int ranks = 1;
  std::int64_t micro = 1;
  std::int64_t accumulation = 1;
  bool recompute = false;
  bool offload = false;
  int shard_group = 0;  // of zero: ranks that have a whole together; 0: all

  int sharers() const {
    return shard_group > 0 && shard_group < ranks ? shard_group : ranks;
  }
  std::int64_t global() const { return micro * accumulation * ranks; }
};

// Bytes of one rank's device.
struct MemoryCost {
  double parameters = 0;
  double gradients = 0;
  double optimizer = 0;
  double master = 0;   // fp32 copies of parameters that are bf16
  double average = 0;  // of the weights (ema)
  double buffers = 0;  // running statistics
  double activations = 0;
  double transient = 0;      // gradients of activations, workspaces
  double buckets = 0;        // beside the gradients
  double batches = 0;        // data that is ready
  double process = 0;        // the context of CUDA, libraries, or what a CPU rank had
  double fragmentation = 0;  // held by the allocator and of no use

  double state() const;    // of the weights: what no micro-batch makes smaller
  double tensors() const;  // without process and fragmentation
  double peak() const { return tensors() + process + fragmentation; }
};

// Seconds of one step.
struct TimeCost {
  double compute = 0;   // forward, backward and what is computed again
  double update = 0;    // the optimizer
  double exchange = 0;  // all collectives
  double exposed = 0;   // the part of these that nothing hides, and what they slow down
  double wait = 0;      // for the slowest rank
  double offload = 0;   // copies to the host and back that nothing hides
  double load = 0;      // of a rank's samples, by its loader threads
  double data_wait = 0;     // the part of it that the rest of the step does not hide
  int workers = 0;          // the loader threads of a rank
  bool host_bound = false;  // compute is the host's: a GPU waits for what it launches
  double step() const {
    return compute + update + exposed + wait + offload + data_wait;
  }
};

// The ratio of measured to predicted values in past runs; planner/history.h.
struct Correction {
  double time = 1;         // a factor, of what a device computes
  double time_spread = 0;  // as a share: 0.1 is +- 10 %
  double host_time = 1;    // the same of a host that launches for a GPU
  double host_time_spread = 0;
  double memory = 1;        // a factor on tensors of a GPU
  double memory_bytes = 0;  // and, of a CPU rank, what its process has besides tensors
  double memory_spread = 0;
  int runs = 0;
  // Where no run was seen: the same factor as `time`, of passes that were tried with
  // some numbers of threads; planner/trials.h.
  struct Trial {
    double threads = 1;
    double factor = 1;
  };
  std::vector<Trial> trials;

  // Returns the factor of a rank with so many threads.
  double time_with(double threads) const;
  double spread_of(const TimeCost& cost) const {
    return cost.host_bound ? host_time_spread : time_spread;
  }
};

struct Prediction {
  Candidate candidate;
  MemoryCost memory;
  TimeCost time;
  double limit = 0;  // of memory.peak(); 0: not known
  double samples_per_second = 0;

  bool fits() const { return limit <= 0 || memory.peak() <= limit; }
};

// All that a prediction depends on besides the candidate.
struct CostInputs {
  const config::Config& config;  // device and precision are no longer auto
  const hardware::Machine& machine;
  const run::ModelDescription& model;
  Correction correction;

  bool on_gpu() const { return config.parallel.device == config::Device::cuda; }
  // Returns whether ranks exchange through memory of the host that they share.
  bool shares_memory() const;
};

// Returns whether matrix products are in half precision.
inline bool is_mixed(config::Precision mode) {
  return mode == config::Precision::bf16 || mode == config::Precision::fp16 ||
         config::has_half_parameters(mode);
}

// Returns whether the model computes its gradients itself (model.own_backward) in a run
// of this configuration, in which knobs may still be auto; and in one of a candidate.
bool takes_own_passes(const CostInputs& inputs);
bool takes_own_passes(const CostInputs& inputs, const Candidate& candidate);

MemoryCost memory_cost(const CostInputs& inputs, const Candidate& candidate);
TimeCost time_cost(const CostInputs& inputs, const Candidate& candidate);
// The memory that memory.fraction allows a rank of its device, or of its part of the
// host; 0: not known. `because` is "0.9 x 22.5 GiB".
struct MemoryLimit {
  double bytes = 0;
  std::string because;
};
MemoryLimit memory_limit(const CostInputs& inputs, const Candidate& candidate);
// Returns whether the run will find its micro-batch by trying, up to memory.target.
bool will_find_micro(const config::Config& config);
// Returns how many of the first `ranks` ranks are on one node, if all nodes have so
// many and there are several; else 0.
int ranks_of_node(const CostInputs& inputs, int ranks);
// Returns the batches that wait for their step, of so many bytes on all ranks together:
// enough to hide a slow one, in a tenth of the host's memory.
int prefetched_batches(const hardware::Machine& machine, double batch_bytes);
// Returns the largest usual batch of an evaluation that takes no more than a step, at
// least `micro`.
std::int64_t evaluation_batch(const CostInputs& inputs, std::int64_t micro);
// Returns the seconds in which one loader thread makes a sample.
double load_seconds(const CostInputs& inputs);
// The loader threads of a rank, and why so many: data.workers, or as many as hide the
// loading of a candidate's samples behind `step_seconds`, if there are cores for them.
struct LoaderWorkers {
  int count = 1;
  std::string because;
};
LoaderWorkers loader_workers(const CostInputs& inputs, const Candidate& candidate,
                             double step_seconds);
// Returns that of all ranks' devices together, a second, at the precision in use.
double peak_flops(const CostInputs& inputs, int ranks);
Prediction predict(const CostInputs& inputs, const Candidate& candidate);

// The samples a second with each number of ranks over that with one, the share of a
// rank being the same: those of {1, 2, 4, 8} for which there are devices, and the
// candidate's own.
struct Scaling {
  int ranks = 1;
  double speed_up = 1;
  std::string lacks;  // "needs 47.5 GiB > 0.9 x 40.0 GiB"; "": it fits
};
std::vector<Scaling> predict_scaling(const CostInputs& inputs,
                                     const Candidate& candidate);

// Returns "needs 47.5 GiB > 0.9 x 40.0 GiB" of a prediction that does not fit, else "".
std::string memory_lack(const CostInputs& inputs, const Prediction& prediction);

// Returns "parameters 4.6 GiB + gradients 4.6 GiB + ... = 31.2 GiB".
std::string terms_of(const MemoryCost& memory);

}  // namespace lockstep::planner
