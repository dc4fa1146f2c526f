#pragma once

#include <string>
#include <vector>

#include "lockstep/run/field.h"

namespace lockstep::cli {

// Returns a field in units that people read: "memory 1.2 GiB", "data wait 3.1 ms", "mfu
// 41.2 %", "1,234 samples/s", "lr 0.001".
std::string human_text(const run::NamedValue& field);

// Returns the lines of at most `width` columns that the pieces make, two blanks between
// them. Lines after the first begin with `indent` blanks; a piece that is longer than a
// line is broken between words, or anywhere if it has none.
std::vector<std::string> wrapped(const std::vector<std::string>& pieces,
                                 std::size_t indent, std::size_t width);

}  // namespace lockstep::cli
