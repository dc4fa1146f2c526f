#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

// Which sample comes at which place of an epoch; an epoch has size() places. Any thread
// may ask for any place, so workers and ranks need not agree on anything.
class Sampler {
 public:
  struct Options {
    bool shuffle = true;
    // Classes come equally often, whatever their sizes: the samples of a small one
    // several times an epoch, those of a large one not in every epoch. Needs shuffle.
    bool weighted = false;
    std::uint64_t seed = 0;
  };
  // Weighted sampling asks for the class of every sample.
  Sampler(const Dataset& dataset, const Options& options);

  std::int64_t size() const noexcept { return size_; }
  Visit at(std::int64_t epoch, std::int64_t place) const noexcept;

 private:
  std::int64_t weighted_index(std::int64_t epoch, std::int64_t place) const noexcept;

  std::int64_t size_;
  Options options_;
  std::vector<std::vector<std::int64_t>> classes_;  // their samples; no empty ones
};

// How many samples each class has. Throws Fault::io for a class out of range.
std::vector<std::int64_t> class_counts(const Dataset& dataset);

}  // namespace lockstep::data
