#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/config/memory.h"
#include "lockstep/memory/device_memory.h"
#include "lockstep/memory/out_of_memory.h"
#include "lockstep/models/model.h"
#include "lockstep/task/tally.h"

namespace lockstep::memory {

// Brings a step back to its beginning after a rank had no memory for it, and finds a
// way to do it again with less. Every rank has one and is told the same, so all decide
// alike.
class Recovery {
 public:
  struct Parts {
    const config::MemoryConfig& config;
    models::Model& model;
    torch::Device device = torch::kCPU;
    std::int64_t micro_batch = 1;
  };
  explicit Recovery(const Parts& parts);

  // Returns whether memory.on_out_of_memory is on; else a rank's error ends the run.
  bool is_on() const noexcept;

  // Begins a step.
  void begin(task::Tally& tally);

  // Counts a step that was done at the first attempt: after memory.grow_after of them
  // micro-batches may be larger again. Returns true if they are from now on.
  bool succeeded();

  // The shortage of a step: the ranks that ran out of memory.
  struct Shortage {
    std::int64_t step = 0;
    std::vector<int> ranks;
    std::vector<DeviceMemory> memory;  // of every rank
  };
  // Puts everything back. Later steps have smaller micro-batches; if they can not be
  // smaller, activations are computed again; if they are, Fault::hardware says what
  // would help. Returns what was changed, as text.
  std::string after(const Shortage& shortage, task::Tally& tally);

  // Puts everything back, and changes nothing else.
  void put_back(task::Tally& tally);

  std::int64_t micro_batch() const noexcept { return micro_; }

 private:
  bool can_recompute() const;
  [[noreturn]] void give_up(const Shortage& shortage) const;

  Parts parts_;
  StepStart start_;
  std::int64_t micro_;
  std::int64_t good_steps_ = 0;  // since the last shortage
};

}  // namespace lockstep::memory
