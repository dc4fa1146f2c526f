#include "lockstep/data/sampler.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/data/detail/numbers.h"
#include "lockstep/data/detail/sample.h"
#include "lockstep/data/permutation.h"
#include "lockstep/data/random.h"

namespace lockstep::data {
namespace {

void check_label(const SampleSpec& spec, std::int64_t index, std::int64_t label) {
  if (label >= 0 && label < spec.num_classes) return;
  throw Error(Fault::io, "data: sample ", index, " has the label ", label,
              ", the data set has the classes 0 to ", spec.num_classes - 1);
}

// Returns the class by which a sample is chosen.
std::size_t sampled_class(const Dataset& dataset, std::int64_t index) {
  const auto found = dataset.class_of(index);
  if (found == dataset.spec().ignore_index) {
    throw Error(Fault::config, "data.weighted_sampling: sample ", index,
                " has no class: its label ", found,
                " is ignored (task.ignore_index); leave such samples out, or set "
                "data.weighted_sampling=false");
  }
  check_label(dataset.spec(), index, found);
  return static_cast<std::size_t>(found);
}

void check_one_class(const SampleSpec& spec) {
  constexpr std::string_view kKnob = "data.weighted_sampling";
  require_classes(spec, kKnob);
  if (spec.num_targets() == 1 && !spec.target_varies) return;
  throw Error(Fault::config, kKnob, ": samples have targets of shape ",
              c10::IntArrayRef(spec.target_shape),
              ", so that none has one class by which it could be chosen; set it to "
              "false (data.balanced_loss lets rare classes weigh more)");
}

bool has_mask(const SampleSpec& spec) {
  return std::any_of(spec.fields.begin(), spec.fields.end(),
                     [](const auto& field) { return field.name == "target_mask"; });
}

}  // namespace

void require_classes(const SampleSpec& spec, std::string_view knob) {
  constexpr auto kRemedy =
      "; leave it out (task.positive_weights weighs the labels of "
      "task.name=multi_label)";
  if (!detail::is_whole(spec.target_dtype)) {
    throw Error(Fault::config, knob, ": is for classes, but targets are ",
                c10::toString(spec.target_dtype), " of shape ",
                c10::IntArrayRef(spec.target_shape), kRemedy);
  }
  if (spec.num_classes > 0) return;
  throw Error(Fault::config, knob,
              ": is for classes, but the data set does not say how many there are "
              "(SampleSpec::num_classes)",
              kRemedy);
}

std::vector<std::int64_t> class_counts(const Dataset& dataset) {
  const auto& spec = dataset.spec();
  std::vector<std::int64_t> counts(static_cast<std::size_t>(spec.num_classes));
  const auto count = [&](std::int64_t index, std::int64_t label) {
    if (label == spec.ignore_index) return;
    check_label(spec, index, label);
    counts[static_cast<std::size_t>(label)] += 1;
  };
  // A data set may know the class of a sample without reading it.
  const bool is_one = spec.target_shape.empty() && !has_mask(spec);
  detail::Sample sample(dataset);
  for (std::int64_t i = 0; i < dataset.size(); ++i) {
    if (is_one) {
      count(i, dataset.class_of(i));
      continue;
    }
    sample.read(i);
    for (const auto label : sample.classes()) count(i, label);
  }
  return counts;
}

Sampler::Sampler(const Dataset& dataset, const Options& options)
    : size_(dataset.size()), options_(options) {
  if (!options.weighted) return;
  LOCKSTEP_CHECK(options.shuffle, "weighted sampling is a shuffle");
  check_one_class(dataset.spec());
  classes_.resize(static_cast<std::size_t>(dataset.spec().num_classes));
  for (std::int64_t i = 0; i < size_; ++i) {
    classes_[sampled_class(dataset, i)].push_back(i);
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
  // If the division leaves a rest, the first classes get one more.
  const auto an_epoch = size_ / num_classes + (chosen < size_ % num_classes ? 1 : 0);
  const auto nth = epoch * an_epoch + dealt / num_classes;
  const Permutation round(static_cast<std::uint64_t>(count),
                          scramble(options_.seed ^ static_cast<std::uint64_t>(chosen)),
                          static_cast<std::uint64_t>(nth / count));
  return samples[static_cast<std::size_t>(
      round(static_cast<std::uint64_t>(nth % count)))];
}

}  // namespace lockstep::data
