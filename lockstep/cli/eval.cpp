// lockstep eval RUN: losses and metrics of a trained model.
#include <cmath>
#include <ostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/detail/inference.h"
#include "lockstep/monitor/catalogue.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string metrics_text(const Json& metrics) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, value] : metrics.items()) {
    rows.push_back({name, value.is_null() ? "NaN"
                          : value.is_number_integer()
                              ? value.dump()
                              : fmt::format("{:.6g}", value.get<double>())});
  }
  return text::table(rows);
}

int run_eval(const Arguments& arguments, Context& context) {
  const auto output =
      run_inference({.command = "eval", .catches_output = true}, arguments, context);
  if (const auto status = status_of(output.end); status != kExitOk) return status;
  const auto metrics = Json::parse(output.out, nullptr, false);
  if (!metrics.is_object()) {
    throw Error(Fault::internal, "eval: lockstep_worker said '", output.out, "'");
  }
  context.out << (arguments.has("--json") ? output.out : metrics_text(metrics));
  return kExitOk;
}

}  // namespace

Command eval_command() {
  auto options = inference_options();
  options.push_back({.name = "--json", .help = "Print one JSON object."});
  return {
      .name = "eval",
      .summary = "Evaluate a trained model: losses and metrics.",
      .usage = "lockstep eval [RUN] [options] [section.key=value]...",
      .details =
          "  lockstep eval runs/0001\n"
          "  lockstep eval runs/0001 --weights best data.dir=other/images\n"
          "  lockstep eval 0001 eval.metrics=[confusion,per_class] --json\n\n"
          "Every sample of the evaluation's part of the data is counted once, as in "
          "the run\nitself; data.* and eval.* may name others.\n",
      .operands = {inference_run()},
      .options = std::move(options),
      .takes_overrides = true,
      .run = run_eval};
}

}  // namespace lockstep::cli
