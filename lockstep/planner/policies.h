#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/config/planner.h"
#include "lockstep/planner/cost.h"

// The rules of planner.policy, one function each. A policy wishes; what somebody has
// named stays as it is.
namespace lockstep::planner {

// What the rules look at.
struct Facts {
  int devices = 0;                // GPUs that would train; 0: there is none
  std::int64_t memory_bytes = 0;  // of the smallest of them
  bool can_recompute = false;     // the model is known to have blocks
  config::PlannerConfig knobs;
};

// What a policy leaves open is left to the rules of resolve.cpp.
struct Wish {
  std::optional<Method> method;
  std::string method_because;
  std::optional<int> ranks;
  std::string ranks_because;
  std::optional<std::int64_t> micro;
  std::optional<std::int64_t> accumulation;
  std::string batch_because;
  bool micro_is_guess = false;  // memory.find_micro may find a better one
  std::optional<std::int64_t> eval;
  std::optional<bool> recompute;
  std::string recompute_because;
  std::optional<bool> offload;
  std::string offload_because;
};

// No GPU: the CPU; 1: single; 2 to 4: data_parallel; more: ddp.
Wish simple_policy(const Facts& facts);
// No GPU: the CPU; 1: single; several: ddp if enable_distributed, else data_parallel if
// enable_data_parallel, else single.
Wish flags_policy(const Facts& facts);
// 1: single; several: ZeRO-2, or ddp where the build has none.
Wish zero2_policy(const Facts& facts);
// Batches by the memory of a GPU, recomputing on, and ranks as zero2 has them.
Wish table_policy(const Facts& facts);

struct TableRow {
  std::int64_t least_bytes;  // of a GPU's memory
  std::int64_t micro;
  std::int64_t accumulation;
};
// The row for so much memory.
TableRow table_row(std::int64_t memory_bytes);

// What others usually see with so many ranks; 0: no such expectation.
double usual_speed_up(int ranks);

}  // namespace lockstep::planner
