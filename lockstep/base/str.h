#pragma once

#include <sstream>
#include <string>

namespace lockstep {

// Joins its parts as operator<< writes them. Enough for an error text, and its header
// needs no library.
template <typename... Parts>
std::string str(const Parts&... parts) {
  std::ostringstream out;
  static_cast<void>((out << ... << parts));
  return out.str();
}

}  // namespace lockstep
