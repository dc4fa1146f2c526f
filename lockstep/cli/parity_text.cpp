// Makes the output of `lockstep parity`: a table for each comparison, and the verdicts.
#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/text.h"
#include "lockstep/cli/detail/json_line.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/cli/detail/parity.h"

namespace lockstep::cli {
namespace {

constexpr char kReason[] =
    "Why 1e-8: everything is computed in float64, which rounds by 2e-16. Adding the "
    "same\n"
    "numbers in another order, as more ranks do, stays orders of magnitude below 1e-8; "
    "a\n"
    "sample lost or counted twice, or a gradient scaled by 0.1 %, stays orders above "
    "it.\n"
    "A difference is the largest |a - b| of a tensor, relative to the largest |a| in "
    "it.\n";

std::string number(double value) {
  return value == 0 ? "0" : fmt::format("{:.1e}", value);
}

std::string table_of(const Comparison& comparison) {
  std::vector<std::vector<std::string>> rows{{"step", "loss", "differs", "gradients",
                                              "relative", "most in", "parameters",
                                              "relative", "most in"}};
  for (const auto& step : comparison.steps) {
    const bool start = step.step == 0;
    rows.push_back({start ? "start" : str(step.step),
                    start ? "" : fmt::format("{:.6f}", step.loss_other),
                    start ? "" : number(step.loss.relative),
                    start ? "" : number(step.gradient.absolute),
                    start ? "" : number(step.gradient.relative), step.gradient.where,
                    number(step.parameter.absolute), number(step.parameter.relative),
                    step.parameter.where});
  }
  return text::table(rows, {0, 1, 2, 3, 4, 6, 7});
}

// The first that is out of bounds is where to look, not the worst: in the order in
// which a step computes, the loss, the gradients, then the parameters.
struct Finding {
  std::string what;  // "the gradient of conv1.weight at step 1"
  double difference = 0;
};

std::optional<Finding> first_finding(const Comparison& comparison) {
  for (const auto& step : comparison.steps) {
    const auto at =
        step.step == 0 ? std::string(" at the start") : str(" at step ", step.step);
    for (const auto& [what, which] : {std::pair{"the loss", &step.loss},
                                      std::pair{"the gradient of ", &step.gradient},
                                      std::pair{"the parameter ", &step.parameter}}) {
      if (which->relative <= kAllowed) continue;
      return Finding{str(what, which->where, at), which->relative};
    }
  }
  return std::nullopt;
}

bool is_plural(const std::string& name) {
  return name.front() >= '0' && name.front() <= '9' && name != "1 rank";
}

// Returns "2 ranks do", "1 rank does".
std::string does(const std::string& name, std::string_view more = "") {
  return str(name, is_plural(name) ? " do" : " does", more);
}

std::string ranks_line(const Comparison& comparison) {
  if (!comparison.ranks_differ.empty() || comparison.ranks < 2) return "";
  return str("All ", comparison.ranks, " ranks hold the same bits after every step.\n");
}

std::string verdict_of(const Comparison& comparison, bool color) {
  const auto passes = comparison.passes();
  const auto word =
      toned(passes ? "PASS" : "FAIL", passes ? Tone::green : Tone::red, color);
  if (passes) {
    return fmt::format(
        "{}: {} {} what {}: the largest relative difference is {}, "
        "allowed is {:.0e}\n",
        word, comparison.name, is_plural(comparison.name) ? "compute" : "computes",
        does(comparison.reference), number(comparison.worst().largest()), kAllowed);
  }
  std::string text;
  if (!comparison.ranks_differ.empty()) {
    text += fmt::format("{}: {}: the ranks do not agree: {}\n", word, comparison.name,
                        comparison.ranks_differ);
  }
  if (const auto found = first_finding(comparison)) {
    text += fmt::format("{}: {} compute what {}: {} differs by {}, allowed is {:.0e}\n",
                        word, does(comparison.name, " not"), does(comparison.reference),
                        found->what, number(found->difference), kAllowed);
  }
  return text;
}

nlohmann::ordered_json json_of(const Difference& difference) {
  nlohmann::ordered_json json{{"absolute", difference.absolute},
                              {"relative", difference.relative}};
  if (!difference.where.empty()) json["where"] = difference.where;
  return json;
}

nlohmann::ordered_json json_of(const Comparison& comparison) {
  nlohmann::ordered_json steps = nlohmann::ordered_json::array();
  for (const auto& step : comparison.steps) {
    nlohmann::ordered_json one{{"step", step.step}};
    if (step.step > 0) {
      one["loss"] = json_of(step.loss);
      one["loss"]["value"] = step.loss_other;
      one["loss"]["reference"] = step.loss_reference;
      one["gradient"] = json_of(step.gradient);
    }
    one["parameter"] = json_of(step.parameter);
    steps.push_back(std::move(one));
  }
  return {{"name", comparison.name},
          {"reference", comparison.reference},
          {"verdict", comparison.passes() ? "pass" : "fail"},
          {"largest", comparison.worst().largest()},
          {"ranks_differ", comparison.ranks_differ},
          {"steps", std::move(steps)}};
}

bool all_pass(const std::vector<Comparison>& comparisons) {
  return std::all_of(comparisons.begin(), comparisons.end(),
                     [](const auto& one) { return one.passes(); });
}

}  // namespace

std::string parity_text(const std::vector<Comparison>& comparisons, bool color) {
  std::string result;
  for (const auto& comparison : comparisons) {
    result += toned(str(comparison.name, " against ", comparison.reference), Tone::bold,
                    color) +
              "\n" + table_of(comparison) + ranks_line(comparison) + "\n";
  }
  for (const auto& comparison : comparisons) result += verdict_of(comparison, color);
  return result + kReason;
}

std::string parity_json(const std::vector<Comparison>& comparisons,
                        const ParityRequest& request) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const auto& comparison : comparisons) all.push_back(json_of(comparison));
  return json_line({{"verdict", all_pass(comparisons) ? "pass" : "fail"},
                    {"allowed", kAllowed},
                    {"precision", "fp64"},
                    {"steps", request.steps},
                    {"inject", request.injection ? to_text(*request.injection) : ""},
                    {"comparisons", std::move(all)}});
}

}  // namespace lockstep::cli
