#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/config/planner.h"
#include "lockstep/planner/cost.h"

// The rules of planner.policy, one function each. A policy wishes; knobs that a user
// has set stay as they are.
namespace lockstep::planner {

// The facts that the rules look at.
struct Facts {
  int devices = 0;                // GPUs that would train; 0: there is none
  std::int64_t memory_bytes = 0;  // of the smallest of them
  bool can_recompute = false;     // the model is known to have blocks
  config::PlannerConfig knobs;
};

// The wishes of a policy. Fields left open are for the rules of resolve.cpp.
struct Preference {
  std::optional<Method> method;
  std::string method_because;
  std::optional<int> ranks;
  std::string ranks_because;
  std::optional<int> shard_group;  // of zero
  std::string shards_because;
  std::optional<std::int64_t> micro;
  std::optional<std::int64_t> accumulation;
  std::string batch_because;
  bool micro_is_guess = false;  // memory.find_micro may find a better one
  std::optional<bool> find_micro;
  std::string find_micro_because;
  std::optional<std::int64_t> eval;
  std::optional<bool> recompute;
  std::string recompute_because;
  std::optional<bool> offload;
  std::string offload_because;
};

// Chooses by GPUs: none: the CPU; 1: single; 2 to 4: data_parallel; more: ddp.
Preference simple_policy(const Facts& facts);
// Chooses by GPUs: none: the CPU; 1: single; several: ddp if enable_distributed, else
// data_parallel if enable_data_parallel, else single.
Preference flags_policy(const Facts& facts);
// Chooses by GPUs: 1: single; several: ZeRO-2, or ddp where the build has none.
Preference zero2_policy(const Facts& facts);
// Chooses batches by the memory of a GPU, recomputing on, and ranks as zero2 does.
Preference table_policy(const Facts& facts);

struct TableRow {
  std::int64_t least_bytes;  // of a GPU's memory
  std::int64_t micro;
  std::int64_t accumulation;
};
// Returns the row for so much memory.
TableRow table_row(std::int64_t memory_bytes);

// Returns the usual speed-up with so many ranks; 0: no such expectation.
double usual_speed_up(int ranks);

}  // namespace lockstep::planner
