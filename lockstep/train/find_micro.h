#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/join.h"
#include "lockstep/config/config.h"
#include "lockstep/models/model.h"
#include "lockstep/parallel/strategy.h"
#include "lockstep/train/shared.h"
#include "lockstep/train/step.h"

namespace lockstep::train {

// What a step with micro-batches of a size took, on the rank that took the most.
struct Tried {
  std::int64_t size = 0;
  bool fits = false;  // it ran, and took no more than the target
  std::int64_t peak_bytes = 0;
};

// The largest micro-batch that fits, found by trying. Every rank has one and is told
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

  // What to try; nothing when found() is known.
  std::optional<std::int64_t> next() const;
  void observe(const Tried& tried);

  // The largest that fits; 0 if not even 1 does.
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

struct FindParts {
  const config::Config& config;
  models::Model& model;
  parallel::Strategy& strategy;
  Step& step;
  std::shared_ptr<const task::Task> task;
  comm::World& world;
  const data::SampleSpec& spec;
  std::optional<HostMemoryLimit>& limit;  // memory.host_limit
};

// Tries steps over made-up samples, from which nothing stays but the size that `step`
// has afterwards. Returns what came of it, as text. Fault::hardware if nothing fits.
// Collective.
std::string find_micro_batch(const FindParts& parts);

}  // namespace lockstep::train
