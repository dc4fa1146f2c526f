#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <torch/torch.h>

#include "lockstep/data/batch.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/transforms/mix.h"

namespace lockstep::data {

struct LoaderOptions {
  std::int64_t batch = 1;  // the global one
  int rank = 0;
  int ranks = 1;
  int workers = 1;
  int prefetch = 2;  // batches that are ready before they are asked for
  bool shuffle = true;
  std::uint64_t seed = 0;
  Position start;
  std::optional<std::int64_t> epochs;  // stop after so many; none: go on for ever
  bool drop_last = false;              // no short batch at the end of an epoch
  std::int64_t limit_batches = 0;      // an epoch ends after so many; 0: with the data
  bool weighted = false;               // classes come equally often; needs shuffle
  Mixing mixing = {};
  bool skip_bad = false;    // another sample takes the place of a bad one
  bool pin_memory = false;  // batches are in memory that a GPU can fetch from
};

// Returns the samples of one epoch: all, or fewer by drop_last and limit_batches.
// Throws Fault::config if that is none.
std::int64_t samples_per_epoch(std::int64_t num_samples, const LoaderOptions& options);

// Yields the batches of a data set in the order of the seeded permutation, one epoch
// after the other; each epoch visits each sample exactly once, unless the options say
// otherwise. Worker threads fill a fixed ring of batches ahead of the consumer, so that
// the steady state allocates nothing.
//
// Rank r of N gets the samples [n * r / N, n * (r + 1) / N) of a global batch of n, or
// in proportion to the weights of reshare(): the ranks together see each sample once,
// whatever the shares are.
//
// Threads:  next() by one thread.
// Lifetime: the data set outlives the loader; the destructor joins the workers.
class Loader {
 public:
  // The largest weight of reshare(); times the largest batch and 1,024 ranks it stays
  // below 2^63.
  static constexpr std::int64_t kLargestWeight = 1 << 20;

  Loader(const Dataset& dataset, const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Returns the next batch, or null after the last epoch. Rethrows a worker's
  // exception.
  const Batch* next();

  // Returns whether next() would return at once.
  bool is_ready() const;

  // Returns the result of next(), if it is there already; nullptr: not yet, or there is
  // none.
  const Batch* peek() const;

  // From batch number `from` on (the first is 0), rank r's share is in proportion to
  // weights[r]; all ranks pass the same. At least prefetch_depth() batches ahead:
  // others may be filled already.
  void reshare(std::int64_t from, std::vector<std::int64_t> weights);
  std::int64_t prefetch_depth() const noexcept;

  // Returns the seconds that next() has spent waiting for workers.
  double waited_seconds() const noexcept;
  int num_workers() const noexcept;

  // Returns how often another sample took the place of a bad one.
  std::int64_t num_skipped() const noexcept;

  std::int64_t samples_per_epoch() const noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::data
