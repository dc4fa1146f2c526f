#include "lockstep/report/detail/confusion.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/text.h"
#include "lockstep/report/chart.h"
#include "lockstep/run/class_names.h"

namespace lockstep::report::detail {
namespace {

// By true and predicted class.
using Matrix = std::map<std::pair<std::int64_t, std::int64_t>, double>;

Matrix matrix_in(const monitor::Metrics& line) {
  Matrix matrix;
  for (const auto& field : line.more) {
    const auto words = text::split(field.name, '_');
    if (words.size() != 3 || words[0] != "confusion") continue;
    const auto truth = text::to_integer(words[1]);
    const auto predicted = text::to_integer(words[2]);
    const auto value = run::number_of(field);
    if (truth && predicted && value) matrix[{*truth, *predicted}] = *value;
  }
  return matrix;
}

}  // namespace

std::string confusion_table(const run::RunDirectory& run,
                            const std::vector<monitor::Metrics>& metrics) {
  Matrix matrix;
  std::int64_t step = 0;
  for (const auto& line : metrics) {
    if (line.split != monitor::Split::eval) continue;
    auto one = matrix_in(line);
    if (one.empty()) continue;
    matrix = std::move(one);
    step = line.step;
  }
  if (matrix.empty()) return "";
  const auto names = run::read_class_names(run);
  const auto name_of_class = [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    return html_text(at < names.size() ? names[at] : std::to_string(i));
  };
  std::map<std::int64_t, double> of_truth;  // samples
  for (const auto& [cell, count] : matrix) of_truth[cell.first] += count;
  std::string html = fmt::format(
      "<p>Evaluation after step {}: a row for each true class, a column for each that "
      "was predicted.</p>\n<div class=\"scroll\"><table class=\"matrix\"><tr><th>true "
      "\\ predicted</th>",
      step);
  for (const auto& [i, all] : of_truth) {
    html += fmt::format("<th>{}</th>", name_of_class(i));
  }
  html += "</tr>\n";
  for (const auto& [i, all] : of_truth) {
    html += fmt::format("<tr><th>{}</th>", name_of_class(i));
    for (const auto& [j, unused] : of_truth) {
      const auto found = matrix.find({i, j});
      const double count = found == matrix.end() ? 0 : found->second;
      const double share = all > 0 ? count / all : 0;
      // What is right is blue, what is wrong orange, as strong as it is frequent.
      html += fmt::format(
          "<td style=\"background:rgba({},{:.2f})\" title=\"{:.1f} % of "
          "{}\">{:.0f}</td>",
          i == j ? "59,118,196" : "217,130,43", std::min(1.0, share), 100 * share,
          name_of_class(i), count);
    }
    html += "</tr>\n";
  }
  return html + "</table></div>\n";
}

}  // namespace lockstep::report::detail
