#include "lockstep/data/open.h"

#include <array>
#include <numeric>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/sampler.h"
#include "lockstep/data/sources.h"
#include "lockstep/data/subset.h"
#include "lockstep/data/transformed.h"

namespace lockstep::data {

// Each is in the source of its data set.
#define LOCKSTEP_DECLARE(name, place) \
  std::unique_ptr<Dataset> open_##name(const config::DataConfig& config, Split split);
LOCKSTEP_DATASETS(LOCKSTEP_DECLARE)
#undef LOCKSTEP_DECLARE

namespace {

struct RegisteredDataset {
  std::string_view name;
  std::unique_ptr<Dataset> (*open)(const config::DataConfig&, Split);
};

#define LOCKSTEP_ROW(name, place) RegisteredDataset{#name, open_##name},
constexpr std::array kEntries{LOCKSTEP_DATASETS(LOCKSTEP_ROW)};
#undef LOCKSTEP_ROW

// Returns the transforms of both parts; training adds the random ones.
Transforms common_transforms(const config::DataConfig& data) {
  return {.resize = data.resize, .mean = data.mean, .deviation = data.std};
}

Transforms train_transforms(const config::Config& config) {
  auto transforms = common_transforms(config.data);
  transforms.crop_padding = config.augment.crop_padding;
  transforms.flip = config.augment.flip;
  transforms.cutout = config.augment.cutout;
  transforms.erase = config.augment.erase;
  return transforms;
}

LoaderOptions common_options(const config::Config& config, const LoaderRank& place) {
  return {.rank = place.rank,
          .ranks = place.ranks,
          .workers = config.data.workers.value(),
          .prefetch = config.data.prefetch.value(),
          .seed = config.run.seed,
          .skip_bad = config.data.on_bad_sample == config::OnBadSample::skip,
          .pin_memory = config.data.pin_memory.value()};
}

}  // namespace

std::unique_ptr<Dataset> open(const config::DataConfig& config, Split split) {
  std::vector<std::string> names;
  for (const auto& entry : kEntries) {
    if (entry.name == config.name) return entry.open(config, split);
    names.emplace_back(entry.name);
  }
  throw Error(Fault::config, "data.name: there is no data set '", config.name,
              "'; there are ", text::join(names, ", "),
              text::did_you_mean(config.name, names));
}

Splits open_splits(const config::Config& config) {
  Splits parts;
  parts.train = open(config.data, Split::train);
  if (config.data.split > 0) {
    auto [train, eval] = hold_out(std::move(parts.train), config.data.split);
    parts.train = std::move(train);
    parts.eval = thinned(std::move(eval), config.data.eval_samples);
  } else {
    parts.eval = open(config.data, Split::eval);
  }
  parts.train = transformed(std::move(parts.train), train_transforms(config));
  parts.eval = transformed(std::move(parts.eval), common_transforms(config.data));
  return parts;
}

LoaderOptions train_options(const config::Config& config, const LoaderRank& place) {
  auto options = common_options(config, place);
  options.batch = config.batch.global.value();
  options.shuffle = config.data.shuffle;
  options.drop_last = config.data.drop_last;
  options.limit_batches = config.train.limit_train_batches;
  options.weighted = config.data.weighted_sampling;
  options.mixing = {config.augment.mixup, config.augment.cutmix};
  return options;
}

LoaderOptions eval_options(const config::Config& config, const LoaderRank& place) {
  auto options = common_options(config, place);
  options.shuffle = false;
  options.limit_batches = config.train.limit_eval_batches;
  options.epochs = 1;
  return options;
}

std::vector<double> class_weights(const config::DataConfig& config,
                                  const Dataset& train) {
  const auto& spec = train.spec();
  if (!config.balanced_loss) {
    const auto& weights = config.class_weights;
    if (weights.empty()) return weights;
    if (spec.num_classes <= 0) require_classes(spec, "data.class_weights");
    if (static_cast<std::int64_t>(weights.size()) == spec.num_classes) return weights;
    throw Error(Fault::config, "data.class_weights: ", weights.size(),
                " weights, but the data set has ", spec.num_classes,
                " classes; write one for each (labels of task.name=multi_label have "
                "task.positive_weights)");
  }
  require_classes(spec, "data.balanced_loss");
  const auto counts = class_counts(train);
  const auto all = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  if (all == 0) {
    throw Error(Fault::config,
                "data.balanced_loss: no target of the training samples counts, all are "
                "ignored or masked out; check task.ignore_index and the data");
  }
  std::vector<double> weights;
  for (const auto count : counts) {
    // A class without targets never needs its weight.
    const auto share =
        static_cast<double>(count) * static_cast<double>(spec.num_classes);
    weights.push_back(count > 0 ? static_cast<double>(all) / share : 0);
  }
  return weights;
}

}  // namespace lockstep::data
