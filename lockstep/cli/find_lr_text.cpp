// Makes the output of `lockstep find-lr`: a chart and the line for the recipe, or JSON.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/text.h"
#include "lockstep/cli/detail/find_lr.h"
#include "lockstep/cli/detail/json_line.h"

namespace lockstep::cli {
namespace {

constexpr std::size_t kWidth = 64;
constexpr std::size_t kHeight = 12;
constexpr double kHighest = 1.5;  // of the first loss

// Draws the smoothed loss over the rate; ^ below the axis is the suggestion.
class Chart {
 public:
  explicit Chart(const LrFinding& finding) : finding_(finding) {
    const auto [least, most] = std::minmax_element(
        finding.points.begin(), finding.points.end(),
        [](const auto& a, const auto& b) { return a.smoothed < b.smoothed; });
    low_ = least->smoothed;
    // A loss that has run away at the end would leave nothing of the rest.
    high_ = std::min(most->smoothed, kHighest * finding.points.front().smoothed);
    high_ = std::max(high_, low_);
    rows_.assign(kHeight, std::string(kWidth, ' '));
    for (std::size_t i = 0; i < finding.points.size(); ++i) {
      rows_[row_of(finding.points[i].smoothed)][column_of(i)] = '*';
    }
  }

  std::string text() const {
    std::string text = "loss, smoothed\n";
    for (std::size_t r = 0; r < kHeight; ++r) {
      const bool labelled = r == 0 || r + 1 == kHeight;
      text += fmt::format("{:>9} |{}\n",
                          labelled ? fmt::format("{:.3g}", r == 0 ? high_ : low_) : "",
                          rows_[r]);
    }
    std::string axis(kWidth, '-');
    if (finding_.best) axis[column_of(*finding_.best)] = '^';
    const auto from = fmt::format("{:.1e}", finding_.points.front().lr);
    const auto to = fmt::format("{:.1e}", finding_.points.back().lr);
    return text + fmt::format("{:>9} +{}\n{:>9}  {:<{}}{}  learning rate\n", "", axis,
                              "", from, kWidth - to.size(), to);
  }

 private:
  std::size_t column_of(std::size_t point) const {
    const auto last = std::max<std::size_t>(finding_.points.size() - 1, 1);
    return point * (kWidth - 1) / last;
  }
  std::size_t row_of(double loss) const {
    const auto share =
        high_ > low_ ? std::max(high_ - loss, 0.0) / (high_ - low_) : 0.0;
    return static_cast<std::size_t>(std::lround(share * (kHeight - 1)));
  }

  const LrFinding& finding_;
  double low_ = 0, high_ = 0;
  std::vector<std::string> rows_;
};

}  // namespace

std::string lr_text(const LrFinding& finding) {
  std::string text = finding.points.empty() ? "" : Chart(finding).text();
  if (!finding.best) {
    return text + fmt::format(
                      "no suggestion: the loss never falls in the {} steps; try other "
                      "rates (--from, --to) or more steps\n",
                      finding.points.size());
  }
  const auto& point = finding.points[*finding.best];
  return text + fmt::format(
                    "suggestion: {} (steepest descent of the loss, step {} of {})\n"
                    "in the recipe:\n  optim:\n    lr: {}\n",
                    text::from_double(finding.lr), point.step, finding.points.size(),
                    text::from_double(finding.lr));
}

std::string lr_json(const LrFinding& finding) {
  using Json = nlohmann::ordered_json;
  Json points = Json::array();
  for (const auto& point : finding.points) {
    points.push_back({{"step", point.step},
                      {"lr", point.lr},
                      {"loss", point.loss},
                      {"smoothed", point.smoothed}});
  }
  return json_line({{"version", 1},
                    {"dir", finding.directory},
                    {"suggestion", finding.best ? Json(finding.lr) : Json()},
                    {"points", std::move(points)}});
}

}  // namespace lockstep::cli
