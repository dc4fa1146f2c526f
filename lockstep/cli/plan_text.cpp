#include <algorithm>

#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/cli/detail/train.h"
#include "lockstep/planner/report.h"

namespace lockstep::cli {

std::string plan_text(const planner::Plan& plan, bool color) {
  std::size_t width = 0;
  for (const auto& choice : plan.choices) {
    width = std::max(width, text::columns(choice.key + " = " + choice.value));
  }
  std::string result;
  for (const auto& choice : plan.choices) {
    const auto knob = choice.key + " = " + choice.value;
    const std::string padding(width - text::columns(knob) + 2, ' ');
    result += str("plan ", knob, padding,
                  toned("# " + choice.because, Tone::dim, color), "\n");
  }
  for (const auto& variable : plan.environment) {
    result += str("plan ", variable.name, "=", variable.value, "  ",
                  toned("# " + variable.because, Tone::dim, color), "\n");
  }
  if (const auto line = planner::summary(plan); !line.empty()) {
    result += "plan predicted: " + line + "\n";
  }
  for (const auto& note : plan.notes) result += "plan note: " + printable(note) + "\n";
  return result;
}

}  // namespace lockstep::cli
