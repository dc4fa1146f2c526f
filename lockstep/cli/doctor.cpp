// lockstep doctor: one report to paste into a question, with a verdict for every check.
#include <algorithm>
#include <ostream>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/detail/checks.h"
#include "lockstep/cli/detail/json_line.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/cli/detail/run_view.h"
#include "lockstep/config/config.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;
using Variables = std::vector<std::pair<std::string, std::string>>;

Verdict worst(const std::vector<Check>& checks) {
  auto verdict = Verdict::ok;
  for (const auto& check : checks) verdict = std::max(verdict, check.verdict);
  return verdict;
}

std::string json_of(const std::vector<Check>& checks, const Variables& variables) {
  Json json;
  json["verdict"] = name_of(worst(checks));
  json["checks"] = Json::array();
  for (const auto& check : checks) {
    json["checks"].push_back({{"name", check.name},
                              {"verdict", name_of(check.verdict)},
                              {"detail", check.detail},
                              {"remedy", check.remedy}});
  }
  json["environment"] = Json::object();
  for (const auto& [name, value] : variables) json["environment"][name] = value;
  return json_line(json);
}

std::string padded(std::string_view text, std::size_t width) {
  std::string result(text);
  result.resize(std::max(width, result.size() + 1), ' ');
  return result;
}

void print(const std::vector<Check>& checks, const Variables& variables,
           Context& context) {
  constexpr std::array kTones = {Tone::green, Tone::yellow, Tone::red};
  for (const auto& check : checks) {
    const auto tone = kTones[static_cast<std::size_t>(check.verdict)];
    context.out << toned(padded(name_of(check.verdict), 6), tone, context.color_out)
                << padded(check.name, 10) << check.detail << "\n";
    if (!check.remedy.empty()) {
      context.out << std::string(16, ' ') << "-> " << check.remedy << "\n";
    }
  }
  for (const auto& [name, value] : variables) {
    context.out << padded("env", 6) << name << "=" << value << "\n";
  }
}

// A variable that sets a knob wrongly is a finding, not the end of the report.
std::vector<Check> all_checks(const Context& context) {
  try {
    return check_all(context, default_run_dir(context));
  } catch (const Error& error) {
    auto checks = check_all(context, config::RunConfig{}.dir);
    checks.push_back({.name = "config",
                      .verdict = Verdict::fail,
                      .detail = error.what(),
                      .remedy = "correct or unset the variable"});
    return checks;
  }
}

int doctor(const Arguments& arguments, Context& context) {
  const auto checks = all_checks(context);
  const auto variables = relevant_environment(context);
  if (arguments.has("--json")) {
    context.out << json_of(checks, variables);
  } else {
    print(checks, variables, context);
  }
  return worst(checks) == Verdict::fail ? kExitEnvironment : kExitOk;
}

}  // namespace

Command doctor_command() {
  return {.name = "doctor",
          .summary = "Report on this machine and what training needs of it.",
          .usage = "lockstep doctor [--json]",
          .details =
              "Every line is a check: ok, warn or fail, with what to do. Ends with 3 "
              "if one fails.\nThe values of secrets are not shown.\n",
          .options = {{.name = "--json", .help = "One JSON object."}},
          .run = doctor};
}

}  // namespace lockstep::cli
