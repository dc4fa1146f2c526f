// One knob, or those of a section, for a user who asks what they are.
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/config/detail/knobs.h"
#include "lockstep/config/detail/loading.h"
#include "lockstep/config/print.h"

namespace lockstep::config {
namespace {

using detail::Knob;

std::string effect_of(Affects affects) {
  switch (affects) {
    case Affects::results:
      return "the numbers that training computes";
    case Affects::speed:
      return "only time or memory";
    case Affects::output:
      return "only what is written and shown";
  }
  return "";
}

std::string set_by(const Loaded& loaded, const Knob& knob) {
  const auto found = loaded.sources.find(knob.key);
  if (found == loaded.sources.end()) return "default";
  const auto& source = found->second;
  return source.where.empty() ? std::string(name_of(source.origin))
                              : str(name_of(source.origin), " ", source.where);
}

std::string explained(const Loaded& loaded, const Knob& knob,
                      const std::string& standard) {
  std::vector<std::vector<std::string>> rows{
      {"  set by", set_by(loaded, knob)},
      {"  default", standard},
      {"  type", knob.type.name},
  };
  if (const auto unit = detail::name_of(knob.field.unit); !unit.empty()) {
    rows.push_back({"  unit", std::string(unit)});
  }
  if (!knob.type.choices.empty()) {
    rows.push_back({"  values", text::join(knob.type.choices, ", ")});
  }
  if (const auto range = detail::describe(knob.field.range); !range.empty()) {
    rows.push_back({"  range", range});
  }
  rows.push_back({"  affects", effect_of(knob.field.affects)});
  if (!knob.field.needs.empty()) {
    rows.push_back({"  needs", std::string(knob.field.needs)});
  }
  return str(knob.key, " = ", knob.write().yaml, "\n  ", knob.field.help, "\n",
             text::table(rows));
}

}  // namespace

std::string explain(const Loaded& loaded, std::string_view key) {
  auto copy = loaded.config;
  Config standard;
  const auto knobs = detail::knobs_of(copy);
  const auto defaults = detail::knobs_of(standard);
  if (knobs.find(key) == nullptr && !knobs.has_section(key)) {
    throw Error(Fault::config, "config show: ", detail::unknown(knobs, key));
  }
  std::string result;
  for (const auto& knob : knobs.all) {
    if (knob.key != key && knob.section != key) continue;
    result += result.empty() ? "" : "\n";
    result += explained(loaded, knob, defaults.find(knob.key)->write().yaml);
  }
  return result;
}

}  // namespace lockstep::config
