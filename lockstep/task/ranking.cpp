#include "lockstep/task/ranking.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/task/detail/one_loss.h"

namespace lockstep::task {
namespace {

using config::EvalMetric;
using detail::mean_or_nan;
using detail::ratio;
using torch::Tensor;

constexpr auto kNothing = std::numeric_limits<double>::quiet_NaN();

// A score and whether it is of a positive.
using Scored = std::pair<float, bool>;

struct Areas {
  double roc = 0, precision = 0;
  bool has_positives = false, has_negatives = false;
};

// Equal scores are one step of a curve, so that a tie of two counts as one half.
Areas areas_of(std::vector<Scored> scored) {
  std::sort(scored.begin(), scored.end(),
            [](const Scored& a, const Scored& b) { return a.first > b.first; });
  double positives = 0, negatives = 0;
  for (const auto& one : scored) (one.second ? positives : negatives) += 1;
  double hits = 0, misses = 0;  // so far
  Areas areas{.has_positives = positives > 0, .has_negatives = negatives > 0};
  for (std::size_t i = 0; i < scored.size();) {
    double p = 0, q = 0;  // with this score
    const auto score = scored[i].first;
    for (; i < scored.size() && scored[i].first == score; ++i) {
      (scored[i].second ? p : q) += 1;
    }
    areas.roc += p * (negatives - misses - q + q / 2);
    hits += p;
    misses += q;
    if (p > 0) areas.precision += p * (hits / (hits + misses));
  }
  areas.roc = ratio(areas.roc, positives * negatives);
  areas.precision = ratio(areas.precision, positives);
  return areas;
}

// Returns the parts of all ranks, one after the other.
Tensor from_all(comm::Communicator& cpu, const Tensor& own) {
  if (cpu.size() == 1) return own;
  const auto lengths = torch::empty({cpu.size()}, torch::kInt64);
  cpu.all_gather(lengths, torch::tensor({own.numel()}, torch::kInt64)).wait();
  std::vector<Tensor> parts;
  parts.reserve(static_cast<std::size_t>(cpu.size()));
  for (int r = 0; r < cpu.size(); ++r) {
    parts.push_back(torch::empty({lengths[r].item<std::int64_t>()}, own.options()));
  }
  cpu.all_gather(parts, own.contiguous()).wait();
  return torch::cat(parts);
}

enum class Mean { macro, micro, each };

struct About {
  bool is_roc = true;
  Mean mean = Mean::macro;
};

About about(EvalMetric metric) {
  switch (metric) {
    case EvalMetric::auroc_micro:
      return {true, Mean::micro};
    case EvalMetric::auroc_per_label:
      return {true, Mean::each};
    case EvalMetric::average_precision:
      return {false, Mean::macro};
    case EvalMetric::average_precision_micro:
      return {false, Mean::micro};
    case EvalMetric::average_precision_per_label:
      return {false, Mean::each};
    default:
      return {true, Mean::macro};
  }
}

class Ranking : public Metric {
 public:
  explicit Ranking(RankingOptions options) : options_(std::move(options)) {}

  void add(const Answers& answers) override {
    detail::check_columns(answers.outputs, options_.num_columns,
                          options_.of_classes ? "classes" : "labels");
    num_scores_ += answers.outputs.numel();
    if (num_scores_ > options_.most_scores) return;  // values() will say so
    auto scores = answers.outputs.to(torch::kFloat32);
    if (options_.of_classes) scores = scores.softmax(1);
    scores_.push_back(scores.cpu().flatten());
    positive_.push_back(positive_in(answers).cpu().flatten());
  }

  std::vector<MetricValue> values(comm::Communicator& cpu) override {
    check_room(cpu);
    Gathered all{from_all(cpu, joined(scores_, torch::kFloat32)),
                 from_all(cpu, joined(positive_, torch::kInt8))};
    // A NaN has no rank.
    const auto counts = all.positive.ge(0);
    const bool ranked =
        all.scores.isfinite().logical_or(counts.bitwise_not()).all().item<bool>();
    const auto columns = ranked ? columns_of(cpu, all) : std::vector<Areas>();
    std::vector<MetricValue> values;
    for (const auto metric : options_.wanted) {
      for (auto& value : values_of(metric, all, columns)) {
        values.push_back(std::move(value));
      }
    }
    return values;
  }

 private:
  struct Gathered {
    Tensor scores, positive;  // flat, (rows, columns)
  };

  // Returns (N, columns) int8: 1 or 0, -1 where it does not count.
  Tensor positive_in(const Answers& answers) const {
    const auto columns = options_.num_columns;
    auto valid = answers.valid;
    Tensor is;
    if (options_.of_classes) {
      const auto classes = torch::arange(columns, answers.targets.options());
      is = answers.targets.unsqueeze(1).eq(classes);
      if (valid.defined()) valid = valid.unsqueeze(1).expand_as(is);
    } else {
      is = answers.targets.gt(0.5);
    }
    auto positive = is.to(torch::kInt8);
    return valid.defined() ? positive.masked_fill(valid.bitwise_not(), -1) : positive;
  }

  static Tensor joined(const std::vector<Tensor>& parts, torch::Dtype dtype) {
    return parts.empty() ? torch::empty({0}, dtype) : torch::cat(parts);
  }

  void check_room(comm::Communicator& cpu) const {
    auto count = torch::tensor({num_scores_}, torch::kInt64);
    if (cpu.size() > 1) cpu.all_reduce(count).wait();
    const auto all = count.item<std::int64_t>();
    if (all <= options_.most_scores) return;
    throw Error(Fault::config, "eval.metrics: ", name_of(options_.wanted[0]),
                " keeps every score: ", text::with_commas(all / options_.num_columns),
                " targets x ", options_.num_columns, " = ", text::with_commas(all),
                ", but ", text::with_commas(options_.most_scores),
                " are the most; leave it out, or evaluate fewer samples "
                "(data.eval_samples, train.limit_eval_batches)");
  }

  std::vector<Scored> scored(const Gathered& all, std::int64_t first,
                             std::int64_t stride) const {
    const auto* score = all.scores.const_data_ptr<float>();
    const auto* positive = all.positive.const_data_ptr<std::int8_t>();
    std::vector<Scored> some;
    some.reserve(static_cast<std::size_t>(all.scores.numel() / stride));
    for (auto i = first; i < all.scores.numel(); i += stride) {
      if (positive[i] >= 0) some.emplace_back(score[i], positive[i] == 1);
    }
    return some;
  }

  // Each rank does its part of the columns; all have all of them then.
  std::vector<Areas> columns_of(comm::Communicator& cpu, const Gathered& all) const {
    const auto columns = options_.num_columns;
    auto numbers = torch::zeros({columns, 4}, torch::kFloat64);
    for (std::int64_t c = cpu.rank(); c < columns; c += cpu.size()) {
      const auto areas = areas_of(scored(all, c, columns));
      auto* row = numbers.data_ptr<double>() + 4 * c;
      row[0] = areas.roc;
      row[1] = areas.precision;
      row[2] = areas.has_positives ? 1 : 0;
      row[3] = areas.has_negatives ? 1 : 0;
    }
    if (cpu.size() > 1) cpu.all_reduce(numbers).wait();
    std::vector<Areas> areas;
    for (std::int64_t c = 0; c < columns; ++c) {
      const auto* row = numbers.const_data_ptr<double>() + 4 * c;
      areas.push_back({row[0], row[1], row[2] > 0, row[3] > 0});
    }
    return areas;
  }

  // Returns nothing where a column has none.
  static std::optional<double> one(const Areas& areas, bool is_roc) {
    if (!areas.has_positives || (is_roc && !areas.has_negatives)) return std::nullopt;
    return is_roc ? areas.roc : areas.precision;
  }

  double macro(const std::vector<Areas>& columns, bool is_roc) const {
    // With two classes, one column says all.
    if (options_.of_classes && columns.size() == 2) {
      return one(columns[1], is_roc).value_or(kNothing);
    }
    double total = 0, seen = 0;
    for (const auto& column : columns) {
      const auto area = one(column, is_roc);
      total += area.value_or(0);
      seen += area ? 1 : 0;
    }
    return mean_or_nan(total, seen);
  }

  std::vector<MetricValue> values_of(EvalMetric metric, const Gathered& all,
                                     const std::vector<Areas>& columns) const {
    std::vector<MetricValue> values;
    const auto [is_roc, mean] = about(metric);
    const bool ranked = !columns.empty();
    const std::string name = is_roc ? "auroc" : "average_precision";
    const auto put = [&](const std::string& suffix, double value,
                         bool is_detail = false) {
      values.push_back(
          {name + suffix, ranked ? value : kNothing, Better::more, true, is_detail});
    };
    if (mean == Mean::macro) put("", ranked ? macro(columns, is_roc) : 0);
    if (mean == Mean::micro) {
      const auto areas = ranked ? areas_of(scored(all, 0, 1)) : Areas();
      put("_micro", one(areas, is_roc).value_or(kNothing));
    }
    if (mean != Mean::each) return values;
    const std::string kind = options_.of_classes ? "_class_" : "_label_";
    for (std::int64_t c = 0; c < options_.num_columns; ++c) {
      const auto areas = ranked ? columns[static_cast<std::size_t>(c)] : Areas();
      put(str(kind, c), one(areas, is_roc).value_or(kNothing), detail::kDetail);
    }
    return values;
  }

  RankingOptions options_;
  std::vector<Tensor> scores_, positive_;
  std::int64_t num_scores_ = 0;
};

}  // namespace

bool is_of_ranking(EvalMetric metric) noexcept {
  return metric == EvalMetric::auroc || metric == EvalMetric::auroc_micro ||
         metric == EvalMetric::auroc_per_label ||
         metric == EvalMetric::average_precision ||
         metric == EvalMetric::average_precision_micro ||
         metric == EvalMetric::average_precision_per_label;
}

std::unique_ptr<Metric> make_ranking(RankingOptions options) {
  return std::make_unique<Ranking>(std::move(options));
}

void insert_ranking(MetricList& list, const std::vector<EvalMetric>& wanted,
                    RankingOptions options) {
  const auto first = std::find_if(wanted.begin(), wanted.end(), is_of_ranking);
  if (first == wanted.end()) return;
  std::copy_if(first, wanted.end(), std::back_inserter(options.wanted), is_of_ranking);
  list.insert(list.begin() + (first - wanted.begin()),
              make_ranking(std::move(options)));
}

}  // namespace lockstep::task
