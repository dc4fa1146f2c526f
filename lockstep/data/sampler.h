#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

// Chooses the sample for each place of an epoch; an epoch has size() places. Any thread
// may ask for any place, so workers and ranks need not agree on anything.
class Sampler {
 public:
  struct Options {
    bool shuffle = true;
    // If true, classes come equally often, whatever their sizes: the samples of a small
    // one several times an epoch, those of a large one not in every epoch. Needs
    // shuffle.
    bool weighted = false;
    std::uint64_t seed = 0;
  };
  // Weighted sampling asks for the class of every sample. Throws Fault::config if they
  // have none, or several.
  Sampler(const Dataset& dataset, const Options& options);

  std::int64_t size() const noexcept { return size_; }
  Visit at(std::int64_t epoch, std::int64_t place) const noexcept;

 private:
  std::int64_t weighted_index(std::int64_t epoch, std::int64_t place) const noexcept;

  std::int64_t size_;
  Options options_;
  std::vector<std::vector<std::int64_t>> classes_;  // their samples; no empty ones
};

// Throws Fault::config, with the knob that asks for classes, if a data set's targets
// are no whole numbers or it does not say how many classes there are.
void require_classes(const SampleSpec& spec, std::string_view knob);

// Returns the number of targets of each class, of all targets that count: one that is
// ignored or masked out has no class. Throws Fault::io for a class out of range.
std::vector<std::int64_t> class_counts(const Dataset& dataset);

}  // namespace lockstep::data
