// lockstep version: what this program is. Starts nothing and loads nothing.
#include <ostream>

#include "lockstep/base/error.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/detail/build_info.h"
#include "lockstep/cli/detail/json_line.h"

namespace lockstep::cli {
namespace {

int version(const Arguments& arguments, Context& context) {
  const auto info = build_info();
  if (arguments.has("--json")) {
    nlohmann::ordered_json json;
    json["name"] = "lockstep";
    json["version"] = info.version;
    json["git"] = info.git;
    json["compiler"] = info.compiler;
    json["build_type"] = info.build_type;
    context.out << json_line(json);
    return kExitOk;
  }
  context.out << "lockstep " << info.version << " (git " << info.git << ", "
              << info.compiler << ", " << info.build_type << ")\n";
  return kExitOk;
}

}  // namespace

Command version_command() {
  return {.name = "version",
          .summary = "Print the version of this program.",
          .usage = "lockstep version [--json]",
          .details = "`lockstep doctor` also shows LibTorch, CUDA and NCCL.\n",
          .operands = {},
          .options = {{.name = "--json", .help = "One JSON object."}},
          .run = version};
}

}  // namespace lockstep::cli
