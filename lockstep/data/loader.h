#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <torch/torch.h>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

// Where in the data a run stands. Two integers, so that a resume is exact at any number
// of ranks.
struct Position {
  std::int64_t epoch = 0;
  std::int64_t consumed = 0;  // samples of this epoch

  auto operator<=>(const Position&) const = default;
};

// This rank's share of a global batch. The tensors belong to the loader and hold these
// values until the next call of next().
struct Batch {
  Position begin;                 // of the first sample of the global batch
  std::int64_t global_size = 0;   // smaller than asked for only at the end of an epoch
  std::int64_t size = 0;          // of the share; may be 0
  std::int64_t largest_size = 0;  // of the shares of all ranks
  torch::Tensor inputs;           // (size, ...) in the data set's dtype
  torch::Tensor targets;          // (size) int64
  bool ends_epoch = false;
};

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
};

// Yields the batches of a data set in the order of the seeded permutation, one epoch
// after the other; each epoch visits each sample exactly once. Worker threads fill a
// fixed ring of batches ahead of the consumer, so that the steady state allocates
// nothing.
//
// Rank r of N gets the samples [n * r / N, n * (r + 1) / N) of a global batch of n, or
// in proportion to the weights of reshare(): the ranks together see each sample once,
// whatever the shares are.
//
// Threads:  next() by one thread.
// Lifetime: the data set outlives the loader; the destructor joins the workers.
class Loader {
 public:
  // Of reshare(); times the largest batch and 1,024 ranks it stays below 2^63.
  static constexpr std::int64_t kLargestWeight = 1 << 20;

  Loader(const Dataset& dataset, const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The next batch, or none after the last epoch. Rethrows what a worker threw.
  const Batch* next();

  // From batch number `from` on (the first is 0), rank r's share is in proportion to
  // weights[r]; all ranks say the same. At least room() batches ahead: others may be
  // filled already.
  void reshare(std::int64_t from, std::vector<std::int64_t> weights);
  std::int64_t room() const noexcept;

  // Seconds that next() has spent waiting for workers.
  double waited_seconds() const noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::data
