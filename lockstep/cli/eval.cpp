// lockstep eval RUN: losses and metrics of a trained model.
#include <map>
#include <optional>
#include <ostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/detail/inference.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/monitor/catalogue.h"
#include "lockstep/run/class_names.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;

using Rows = std::vector<std::vector<std::string>>;

std::string number_text(const Json& value) {
  if (value.is_null()) return "NaN";
  return value.is_number_integer() ? value.dump()
                                   : fmt::format("{:.6g}", value.get<double>());
}

// Returns the words of a name apart: "accuracy_class_3" is accuracy_class and 3.
std::pair<std::string, std::optional<std::int64_t>> numbered(const std::string& name) {
  const auto last = name.rfind('_');
  if (last == std::string::npos) return {name, std::nullopt};
  return {name.substr(0, last), text::to_integer(name.substr(last + 1))};
}

// Classes by their names, where the run has them.
class ClassNames {
 public:
  explicit ClassNames(std::vector<std::string> names) : names_(std::move(names)) {}

  std::string of(std::int64_t i) const {
    const auto at = static_cast<std::size_t>(i);
    return at < names_.size() ? printable(names_[at]) : std::to_string(i);
  }

  // Returns "accuracy_class cat" of "accuracy_class_0".
  std::string in(const std::string& metric) const {
    const auto [stem, number] = numbered(metric);
    const bool is_of_class = number && stem.ends_with("_class") &&
                             static_cast<std::size_t>(*number) < names_.size();
    return is_of_class ? stem + " " + of(*number) : metric;
  }

 private:
  std::vector<std::string> names_;
};

// Cells confusion_i_j: i is the true class, j the one that was predicted.
std::string confusion_text(const Json& metrics, const ClassNames& classes) {
  std::map<std::int64_t, std::map<std::int64_t, std::string>> cells;
  for (const auto& [name, value] : metrics.items()) {
    const auto [rest, predicted] = numbered(name);
    const auto [stem, truth] = numbered(rest);
    if (stem == "confusion" && truth && predicted) {
      cells[*truth][*predicted] = fmt::format("{:.0f}", value.get<double>());
    }
  }
  if (cells.empty()) return "";
  Rows rows{{"true \\ predicted"}};
  std::vector<std::size_t> right;
  for (const auto& [i, count] : cells.begin()->second) {
    right.push_back(rows[0].size());
    rows[0].push_back(classes.of(i));
  }
  for (const auto& [i, counts] : cells) {
    std::vector<std::string> row{classes.of(i)};
    for (const auto& [j, count] : counts) row.push_back(count);
    rows.push_back(std::move(row));
  }
  return "\n" + text::table(rows, right);
}

std::string metrics_text(const Json& metrics, const ClassNames& classes) {
  Rows rows;
  for (const auto& [name, value] : metrics.items()) {
    if (name.starts_with("confusion_")) continue;
    rows.push_back({classes.in(name), number_text(value)});
  }
  return text::table(rows) + confusion_text(metrics, classes);
}

int run_eval(const Arguments& arguments, Context& context) {
  const auto output =
      run_inference({.command = "eval", .catches_output = true}, arguments, context);
  if (const auto status = status_of(output.end); status != kExitOk) return status;
  const auto metrics = Json::parse(output.out, nullptr, false);
  if (!metrics.is_object()) {
    throw Error(Fault::internal, "eval: lockstep_worker said '", output.out, "'");
  }
  const auto run = inference_run_directory("eval", arguments, context);
  const ClassNames classes(run::read_class_names(run));
  context.out << (arguments.has("--json") ? output.out
                                          : metrics_text(metrics, classes));
  return kExitOk;
}

}  // namespace

Command eval_command() {
  auto options = inference_options();
  options.push_back({.name = "--json", .help = "Print one JSON object."});
  return {.name = "eval",
          .summary = "Evaluate a trained model: losses and metrics.",
          .usage = "lockstep eval [RUN] [options] [section.key=value]...",
          .details =
              "  lockstep eval runs/0001\n"
              "  lockstep eval runs/0001 --weights best data.dir=other/images\n"
              "  lockstep eval 0001 eval.metrics=[confusion,per_class] --json\n\n"
              "Every sample of the evaluation data is counted once, as in the run "
              "itself; data.*\n"
              "and eval.* may name other data and metrics.\n",
          .operands = {inference_run()},
          .options = std::move(options),
          .takes_overrides = true,
          .run = run_eval};
}

}  // namespace lockstep::cli
