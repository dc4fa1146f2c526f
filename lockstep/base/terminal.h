#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::terminal {

// Looks up an environment variable.
using Variable = std::function<std::optional<std::string>(std::string_view name)>;

// Returns whether to print colors. NO_COLOR (any value) wins, then FORCE_COLOR and
// CLICOLOR_FORCE (any value but 0), then whether the stream is a terminal that is not
// dumb.
bool wants_color(const Variable& variable, bool is_terminal);

// Makes sure that descriptors 0, 1 and 2 are open (on /dev/null where they are not):
// otherwise the next file that is opened would receive the output meant for a user.
// Call it first in main().
void open_standard_streams() noexcept;

}  // namespace lockstep::terminal
