#include "lockstep/data/subset.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/data/permutation.h"

namespace lockstep::data {
namespace {

// The seed never changes: samples held out in one version must not be trained on in the
// next.
constexpr std::uint64_t kSplitSeed = 20261115;

class Subset : public Dataset {
 public:
  Subset(std::shared_ptr<const Dataset> dataset, std::vector<std::int64_t> indices)
      : dataset_(std::move(dataset)), indices_(std::move(indices)) {}

  std::int64_t size() const noexcept override {
    return static_cast<std::int64_t>(indices_.size());
  }
  const SampleSpec& spec() const noexcept override { return dataset_->spec(); }

  void read_sample(const Visit& visit, const SampleBuffer& room) const override {
    auto inner = visit;
    inner.index = at(visit.index);
    dataset_->read_sample(inner, room);
  }
  std::int64_t class_of(std::int64_t index) const override {
    return dataset_->class_of(at(index));
  }
  std::int64_t length_of(std::int64_t index) const override {
    return dataset_->length_of(at(index));
  }

 private:
  std::int64_t at(std::int64_t index) const {
    return indices_[static_cast<std::size_t>(index)];
  }

  std::shared_ptr<const Dataset> dataset_;
  std::vector<std::int64_t> indices_;
};

}  // namespace

std::unique_ptr<Dataset> subset(std::shared_ptr<const Dataset> dataset,
                                std::vector<std::int64_t> indices) {
  return std::make_unique<Subset>(std::move(dataset), std::move(indices));
}

std::unique_ptr<Dataset> thinned(std::unique_ptr<Dataset> dataset, std::int64_t count) {
  const auto size = dataset->size();
  if (count == 0 || count >= size) return dataset;
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < count; ++i) indices.push_back(i * size / count);
  return subset(std::move(dataset), std::move(indices));
}

HeldOut hold_out(std::unique_ptr<Dataset> dataset, double share) {
  const std::shared_ptr<const Dataset> whole = std::move(dataset);
  const auto size = whole->size();
  const auto held = std::llround(share * static_cast<double>(size));
  if (held == 0 || held == size) {
    throw Error(Fault::config, "data.split: ", share, " of ", size, " samples is ",
                held, ", which leaves ", held == 0 ? "evaluation" : "training",
                " without samples; choose a share between ",
                1 / static_cast<double>(size), " and ",
                1 - 1 / static_cast<double>(size), ", or more samples");
  }
  const Permutation order(static_cast<std::uint64_t>(size), kSplitSeed, 0);
  std::vector<std::int64_t> train, eval;
  for (std::int64_t i = 0; i < size; ++i) {
    const auto place = order(static_cast<std::uint64_t>(i));
    (place < static_cast<std::uint64_t>(held) ? eval : train).push_back(i);
  }
  return {subset(whole, std::move(train)), subset(whole, std::move(eval))};
}

}  // namespace lockstep::data
