#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/join.h"
#include "lockstep/config/memory.h"
#include "lockstep/memory/out_of_memory.h"
#include "lockstep/models/model.h"

namespace lockstep::memory {

// The memory of a step with micro-batches of a size, on the rank that took the most.
struct Tried {
  std::int64_t size = 0;
  bool fits = false;  // it ran, and took no more than the target
  std::int64_t peak_bytes = 0;
};

// Finds the largest micro-batch that fits, by trying. Every rank has one and is told
// the same, so all try the same.
//
// The whole share of a rank is tried first, if it is not large. Else, or if it does not
// fit: memory grows with the size of a micro-batch along a line, nearly; two small
// tries say which; the next is what 70 % of the free memory would hold, but at most
// 512; then the line through the nearest tries says where to go on.
class MicroSearch {
 public:
  struct Limits {
    std::int64_t most = 1;  // the share of a rank
    std::int64_t free_bytes = 0;
    std::int64_t target_bytes = 0;
  };
  explicit MicroSearch(const Limits& limits) : limits_(limits) {}

  // Returns the size to try next; nothing when found() is known.
  std::optional<std::int64_t> next() const;
  void observe(const Tried& tried);

  // Returns the largest that fits; 0 if not even 1 does.
  std::int64_t found() const noexcept { return fits_; }
  const std::vector<Tried>& tries() const noexcept { return tries_; }

 private:
  std::int64_t predicted(std::int64_t bytes) const;
  const Tried& smallest() const;

  Limits limits_;
  std::vector<Tried> tries_;
  std::int64_t fits_ = 0;
  std::optional<std::int64_t> fails_;
};

// The parts of a run that the search needs.
struct MicroBatchSearch {
  const config::MemoryConfig& config;
  models::Model& model;
  comm::World& world;
  HostMemoryLimit* limit = nullptr;  // memory.host_limit; null: there is none
  std::int64_t most = 1;             // the share of a rank
  // Makes a step in micro-batches of this size, and undoes it. Returns false if this
  // rank had no memory for it. Collective.
  std::function<bool(std::int64_t size)> try_step;
};

struct FoundMicroBatch {
  std::int64_t size = 1;
  std::string text;  // the outcome of the search, for the log
};

// Returns the largest micro-batch that fits, or throws Fault::hardware. Collective.
FoundMicroBatch find_micro_batch(const MicroBatchSearch& search);

}  // namespace lockstep::memory
