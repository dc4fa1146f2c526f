#pragma once

#include <exception>
#include <string>

namespace lockstep {

// Returns the text of a library's exception without the stack frames that LibTorch
// appends: these are for the program's developers, not for its users.
std::string without_frames(const std::exception& error);

// Returns the first line of such a text: libraries add where they were.
std::string first_line_of(const std::exception& error);

}  // namespace lockstep
