#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/config/eval.h"
#include "lockstep/task/metric.h"

namespace lockstep::task {

// The most scores that are kept for an evaluation, of all ranks together: 320 MiB with
// their targets. 50,000 samples of 1,000 classes are below it.
inline constexpr std::int64_t kMostScores = 64 << 20;

// Returns whether a metric uses the order of scores: the areas under the ROC curve and
// under the curve of precision over recall (average precision).
bool is_of_ranking(config::EvalMetric metric) noexcept;

struct RankingOptions {
  std::vector<config::EvalMetric> wanted = {};  // all of ranking
  std::int64_t num_columns = 1;                 // classes or labels
  // True if scores are of classes, of which one is right: each is compared with all
  // others, by its probability. Else they are of labels.
  bool of_classes = false;
  std::int64_t most_scores = kMostScores;
};

// Makes all wanted metrics from one copy of the scores, which are kept on the host: the
// order of scores is no sum. It is exact, as scikit-learn computes it. A column without
// positives has no area, nor a ROC curve without negatives: it is NaN and left out of a
// mean, which is NaN where no column has any. An evaluation of more than `most_scores`
// is refused on all ranks alike (Fault::config), and no rank keeps more.
std::unique_ptr<Metric> make_ranking(RankingOptions options);

// `list` has a metric for each of `wanted` that is not of ranking: puts one for all
// others in the place of the first of them.
void insert_ranking(MetricList& list, const std::vector<config::EvalMetric>& wanted,
                    RankingOptions options);

}  // namespace lockstep::task
