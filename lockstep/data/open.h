#pragma once

#include <memory>
#include <vector>

#include "lockstep/config/config.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/split.h"

namespace lockstep::data {

// Opens the data set that a recipe names, limited to data.train_samples or
// data.eval_samples, as it is stored. Throws Fault::config for a name that does not
// exist and Fault::io, with the package that provides the files, where they are
// missing.
std::unique_ptr<Dataset> open(const config::DataConfig& config, Split split);

// Both parts of a recipe's data as a model sees them: data.split and data.resize are
// applied to both, section `augment` to the training samples only.
struct Splits {
  std::unique_ptr<Dataset> train, eval;
};
Splits open_splits(const config::Config& config);

// The rank that loads them.
struct LoaderRank {
  int rank = 0;
  int ranks = 1;
};
LoaderOptions train_options(const config::Config& config, const LoaderRank& place);
// Options for one pass, in the order of the data set.
LoaderOptions eval_options(const config::Config& config, const LoaderRank& place);

// Returns the weight of each class in the loss: data.class_weights, or by
// data.balanced_loss n / (classes * n of the class), whose mean over the targets that
// count is 1; empty if all are alike. Throws Fault::config if their number is not that
// of the classes, or there are none.
std::vector<double> class_weights(const config::DataConfig& config,
                                  const Dataset& train);

}  // namespace lockstep::data
