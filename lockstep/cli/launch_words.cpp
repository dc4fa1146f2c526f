// The options of `lockstep launch` as they were given: typed, or in PET_* variables.
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/cli/detail/launch.h"

namespace lockstep::cli {
namespace {

// Turns "--nproc-per-node" into "PET_NPROC_PER_NODE".
std::string variable_name(std::string_view option) {
  std::string name = "PET_";
  for (const char c : option.substr(2)) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(c));
  }
  return name;
}

}  // namespace

bool LaunchWords::typed(std::string_view option) const {
  return arguments_.has(option);
}

bool LaunchWords::has(std::string_view option) const {
  if (typed(option)) return true;
  const auto name = variable_name(option);
  const auto value = variable(name).value_or("0");
  if (value != "0" && value != "1") {
    throw Error(Fault::config, name, ": '", value,
                "' is neither 0 nor 1; it stands for ", option);
  }
  return value == "1";
}

std::optional<std::string> LaunchWords::value(std::string_view option) const {
  if (typed(option)) return arguments_.value(option);
  const auto value = variable(variable_name(option));
  return value && !value->empty() ? value : std::nullopt;
}

std::string LaunchWords::source(std::string_view option) const {
  return typed(option) ? std::string(option) : variable_name(option);
}

std::optional<int> LaunchWords::number(std::string_view option, int least) const {
  constexpr long long kMost = 65'536;  // ports, nodes and ranks alike
  const auto given = value(option);
  if (!given) return std::nullopt;
  const auto number = text::to_integer(*given);
  if (!number || *number < least || *number > kMost) {
    throw Error(Fault::config, source(option), ": '", *given,
                "' is not a whole number from ", least, " to ", kMost);
  }
  return static_cast<int>(*number);
}

std::chrono::milliseconds grace_period(std::string_view source,
                                       const std::optional<std::string>& given) {
  if (!given) return launcher::kGracePeriod;
  const auto period = units::parse_duration(*given);
  if (!period || period->count() <= 0) {
    throw Error(Fault::config, source, ": '", *given,
                "' is not a time above zero; write 30s or 2min");
  }
  if (*period > launcher::kLongestGracePeriod) {
    throw Error(Fault::config, source, ": '", *given, "' is more than ",
                launcher::kLongestGracePeriod.count(), "h; write 24h or less");
  }
  return *period;
}

std::vector<Option> foreign_options() {
  const std::string plugin =
      "names a Python plugin, and no Python runs here; leave it out (what happens is "
      "in "
      "events.jsonl of the run directory)";
  return {
      {.name = "--run-path",
       .refusal = "runs a Python file inside the launcher, and no Python runs here; "
                  "give the file as the program"},
      {.name = "--virtual-local-rank",
       .refusal = "is not supported; leave it out and choose the device by LOCAL_RANK"},
      {.name = "--local-addr",
       .refusal = "is not needed: the rendezvous is at --master-addr; leave it out (an "
                  "interface is chosen with GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME)"},
      {.name = "--event-log-handler", .refusal = plugin},
      {.name = "--logs-specs", .refusal = plugin},
      {.name = "--duplicate-stdout-filters",
       .refusal = "is not supported; every rank has its own log, search those"},
      {.name = "--duplicate-stderr-filters",
       .refusal = "is not supported; every rank has its own log, search those"},
  };
}

void refuse_foreign_options(const LaunchWords& words) {
  for (const auto& option : foreign_options()) {
    const auto name = variable_name(option.name);
    const auto value = words.variable(name).value_or("");
    if (value.empty() || value == "0") continue;
    throw Error(Fault::config, name, "=", value, ": ", option.name, " ",
                option.refusal);
  }
}

}  // namespace lockstep::cli
