#include "lockstep/config/profile.h"

#include "lockstep/base/text.h"

namespace lockstep::config {

std::optional<StepRange> parse_step_range(std::string_view text) {
  const auto colon = text.find(':');
  const auto first = text::to_integer(text.substr(0, colon));
  const auto last = colon == std::string_view::npos
                        ? first
                        : text::to_integer(text.substr(colon + 1));
  if (!first || !last || *first < 1 || *last < *first) return std::nullopt;
  if (*last - *first >= kMostProfiledSteps) return std::nullopt;
  return StepRange{*first, *last};
}

}  // namespace lockstep::config
