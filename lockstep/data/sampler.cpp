#include "lockstep/data/sampler.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/data/permutation.h"
#include "lockstep/data/random.h"

namespace lockstep::data {
namespace {

std::int64_t checked_class(const Dataset& dataset, std::int64_t index) {
  const auto found = dataset.class_of(index);
  const auto classes = dataset.spec().num_classes;
  if (found >= 0 && found < classes) return found;
  throw Error(Fault::io, "data: sample ", index, " has the label ", found,
              ", the data set has the classes 0 to ", classes - 1);
}

}  // namespace

std::vector<std::int64_t> class_counts(const Dataset& dataset) {
  std::vector<std::int64_t> counts(
      static_cast<std::size_t>(dataset.spec().num_classes));
  for (std::int64_t i = 0; i < dataset.size(); ++i) {
    counts[static_cast<std::size_t>(checked_class(dataset, i))] += 1;
  }
  return counts;
}

Sampler::Sampler(const Dataset& dataset, const Options& options)
    : size_(dataset.size()), options_(options) {
  if (!options.weighted) return;
  LOCKSTEP_CHECK(options.shuffle, "weighted sampling is a shuffle");
  classes_.resize(static_cast<std::size_t>(dataset.spec().num_classes));
  for (std::int64_t i = 0; i < size_; ++i) {
    classes_[static_cast<std::size_t>(checked_class(dataset, i))].push_back(i);
  }
  std::erase_if(classes_, [](const auto& samples) { return samples.empty(); });
}

Visit Sampler::at(std::int64_t epoch, std::int64_t place) const noexcept {
  Visit visit{.index = place, .seed = options_.seed, .epoch = epoch, .draw = place};
  if (options_.weighted) {
    visit.index = weighted_index(epoch, place);
    return visit;
  }
  if (options_.shuffle) {
    const Permutation order(static_cast<std::uint64_t>(size_), options_.seed,
                            static_cast<std::uint64_t>(epoch));
    visit.index = static_cast<std::int64_t>(order(static_cast<std::uint64_t>(place)));
  }
  visit.draw = visit.index;
  return visit;
}

// Places are dealt out to the classes in turn, in a shuffled order; a class goes
// through its samples in rounds that run on from epoch to epoch, each in an order of
// its own.
std::int64_t Sampler::weighted_index(std::int64_t epoch,
                                     std::int64_t place) const noexcept {
  const auto num_classes = static_cast<std::int64_t>(classes_.size());
  const Permutation order(static_cast<std::uint64_t>(size_), options_.seed,
                          static_cast<std::uint64_t>(epoch));
  const auto dealt =
      static_cast<std::int64_t>(order(static_cast<std::uint64_t>(place)));
  const auto chosen = dealt % num_classes;
  const auto& samples = classes_[static_cast<std::size_t>(chosen)];
  const auto count = static_cast<std::int64_t>(samples.size());
  // Of a deal that does not come out even, the first classes get one more.
  const auto an_epoch = size_ / num_classes + (chosen < size_ % num_classes ? 1 : 0);
  const auto nth = epoch * an_epoch + dealt / num_classes;
  const Permutation round(static_cast<std::uint64_t>(count),
                          scramble(options_.seed ^ static_cast<std::uint64_t>(chosen)),
                          static_cast<std::uint64_t>(nth / count));
  return samples[static_cast<std::size_t>(
      round(static_cast<std::uint64_t>(nth % count)))];
}

}  // namespace lockstep::data
