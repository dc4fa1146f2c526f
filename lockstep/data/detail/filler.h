#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/data/detail/slot.h"
#include "lockstep/data/sampler.h"
#include "lockstep/data/transforms/mix.h"

namespace lockstep::data::detail {

// Reads the samples of a share into a slot: checks them, replaces bad ones, mixes
// pairs. The result depends on the place in the epoch, not on the thread that fills.
//
// Threads: several fill at once, each its own slot.
class Filler {
 public:
  struct Options {
    Sampler::Options order;
    Mixing mixing;
    bool skip_bad = false;
  };
  Filler(const Dataset& dataset, const Options& options);

  // Returns the kind of slot that this filler needs.
  BatchSlot::Kind slot_kind() const noexcept;

  // The places [first, first + size) of an epoch.
  struct EpochRange {
    std::int64_t epoch, first, size;
  };

  // Fills rows from 0 on with the samples at these places.
  void fill(BatchSlot& slot, const EpochRange& range);

  // Returns the number of replacements of bad samples.
  std::int64_t num_skipped() const noexcept { return num_skipped_; }

 private:
  void read(const Visit& visit, const SampleBuffer& room);
  void read_checked(const Visit& visit, const SampleBuffer& room) const;
  void check_classes(const FieldSpec& spec, std::span<const std::byte> bytes,
                     std::int64_t length) const;
  void note_skipped(std::int64_t index, const Error& error);
  void mix_pairs(BatchSlot& slot, const EpochRange& range);
  struct RowPair {
    std::int64_t a, b;
  };
  void mix_rows(BatchSlot& slot, const RowPair& rows, const Blend& blend) const;

  const Dataset& dataset_;
  const std::vector<FieldSpec> specs_;  // input, target, fields
  const Options options_;
  const Sampler sampler_;
  std::atomic<std::int64_t> num_skipped_ = 0;
  std::mutex mutex_;
  std::set<std::int64_t> known_bad_;  // guarded by mutex_
};

}  // namespace lockstep::data::detail
