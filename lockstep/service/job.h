#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/service/states.h"

namespace lockstep::service {

// Times are milliseconds since 1970, as the database has them.
using Milliseconds = std::int64_t;

// What a job wants to run on.
struct Resources {
  int cores = 1;
  int gpus = 0;
  std::vector<int> gpu_ids = {};  // these very ones; empty: any
  std::int64_t min_memory_bytes = 0;
  double memory_fraction = 0;  // of each GPU, shared with other jobs; 0: alone on it

  bool operator==(const Resources&) const = default;
};

struct NewJob {
  std::string user;
  std::string name;
  JobKind kind = JobKind::training;
  int priority = 0;  // higher ones go first
  int max_retries = 0;
  Milliseconds time_limit = 0;  // of training, over all attempts; 0: none
  Resources resources;
  std::vector<std::string> needs = {};  // jobs that have to be done before
  // As it came, for people who ask later, and as YAML or JSON. A list of jobs has
  // neither: together they may be larger than the memory.
  std::string request;
  std::string recipe;
  std::vector<std::pair<std::string, std::string>> overrides = {};  // of the server
};

struct Job : NewJob {
  std::int64_t number = 0;  // in the order in which they came
  std::string id;
  JobState state = JobState::queued;
  std::string reason;
  Milliseconds created = 0;
  Milliseconds changed = 0;   // of the state
  Milliseconds started = 0;   // its first attempt
  Milliseconds finished = 0;  // 0: it has not
  Milliseconds not_before = 0;
  Milliseconds spawned = 0;  // the supervisor of this attempt
  int attempt = 0;           // supervisors that were started
  int retries = 0;
  double gpu_seconds = 0;  // that its attempts have had, times GPUs
  double seconds = 0;      // that its attempts have had
  std::int64_t bytes = 0;  // of its folder, when its last attempt ended
  std::string recipe_key;  // the same for the same recipe; "": not known
};

struct StateChange {
  Milliseconds time = 0;
  JobState state = JobState::queued;
  std::string reason;
};

// A share of a GPU, or a core, that a job has.
struct Lease {
  std::string job;
  bool is_gpu = false;
  int unit = 0;      // the GPU, or the core
  double share = 1;  // of the GPU
};

}  // namespace lockstep::service
