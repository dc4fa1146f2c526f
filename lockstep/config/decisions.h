#pragma once

#include <string>

#include "lockstep/config/checkpoint.h"
#include "lockstep/config/comm.h"
#include "lockstep/config/lora.h"
#include "lockstep/config/model.h"
#include "lockstep/config/parallel.h"

// What follows from knobs together with something that shows only later: each is
// decided here and nowhere else, for the planner's predictions as for the worker.
namespace lockstep::config {

struct Config;

// Returns whether each rank updates its shard of the parameters. A shard is exchanged
// as fast as a whole bucket is summed where ranks see each other's memory, and the
// update itself takes a part of the time then. Over a network the way back can not be
// hidden behind the backward pass, as that of a sum can.
inline bool shards_update(const ParallelConfig& parallel, bool ranks_share_memory) {
  if (parallel.strategy == Strategy::zero) return true;
  if (parallel.shard_update == ShardUpdate::on) return true;
  if (parallel.shard_update == ShardUpdate::off) return false;
  return ranks_share_memory && parallel.gradient_as_bucket_view;
}

// Returns why ranks can not shard within groups of so many, and what comes nearest; ""
// if they can.
std::string lack_of_shard_group(int group, int ranks);

// Returns whether parameters may stay unused. One rank waits for nobody: a parameter
// without a gradient is not a mistake there.
inline bool finds_unused(const ParallelConfig& parallel) {
  return parallel.find_unused_parameters || parallel.strategy == Strategy::single;
}

// Returns whether comm.backend says that ranks are threads, or processes, by name.
inline bool asks_for_threads(const CommConfig& comm) {
  return comm.backend == CommBackend::local;
}
inline bool asks_for_processes(const CommConfig& comm) {
  return comm.backend != CommBackend::local && comm.backend != CommBackend::automatic;
}

// Returns whether CPU ranks of one machine exchange through memory that they share.
inline bool shares_memory(const CommConfig& comm) {
  return comm.backend == CommBackend::automatic || comm.backend == CommBackend::shm ||
         comm.backend == CommBackend::shm_or_gloo;
}

// Returns whether checkpoints hold parameters that are not trained. Those under
// adapters are in the file that the run began with.
inline bool saves_frozen(const LoraConfig& lora, const ModelConfig& model) {
  return lora.rank == 0 || model.weights.empty();
}

// Returns which knob keeps a model from computing its gradients itself with
// model.own_backward=auto, as a clause; "" if none does. A knob that is still auto does
// not.
std::string obstacle_to_own_passes(const Config& config);

// Returns whether a rerun resumes from the checkpoints of its run.
inline bool resumes(const CheckpointConfig& checkpoint) {
  return checkpoint.resume != "never";
}

}  // namespace lockstep::config
