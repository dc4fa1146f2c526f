#pragma once

#include <string>
#include <string_view>

#include "lockstep/cli/command.h"
#include "lockstep/jobs/caller.h"

namespace lockstep::cli {

enum class Tone { plain, bold, dim, red, green, yellow };

// Returns `text` in that tone where colours are on, else as it is.
std::string toned(std::string_view text, Tone tone, bool color);

// Returns `text` with control characters spelled out, newlines and tabs apart: names of
// files and keys of recipes come from anywhere and must not command the terminal.
std::string printable(std::string_view text);

// Prints "lockstep: error: ..." on context.err.
void print_error(Context& context, std::string_view message);

// Returns the context as jobs see it: what they say goes to context.err.
jobs::Caller caller_of(const Context& context);

// Returns one word of a command line, quoted for a shell if it needs to be.
std::string shell_word(std::string_view word);

}  // namespace lockstep::cli
