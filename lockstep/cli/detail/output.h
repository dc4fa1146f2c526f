#pragma once

#include <string>
#include <string_view>

#include "lockstep/cli/command.h"

namespace lockstep::cli {

enum class Tone { plain, bold, dim, red, green, yellow };

// `text` in that tone where colours are on, else as it is.
std::string toned(std::string_view text, Tone tone, bool color);

// `text` with control characters spelled out, newlines and tabs apart: names of files
// and keys of recipes come from anywhere and must not command the terminal.
std::string printable(std::string_view text);

// "lockstep: error: ..." on context.err.
void print_error(Context& context, std::string_view message);

// One word of a command line, quoted for a shell if it needs to be.
std::string shell_word(std::string_view word);

}  // namespace lockstep::cli
