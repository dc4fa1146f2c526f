#include "lockstep/base/library_error.h"

#include <algorithm>

namespace lockstep {

std::string without_frames(const std::exception& error) {
  std::string text = error.what();
  for (const auto* mark : {"\nException raised from ", "\nframe #"}) {
    text.resize(std::min(text.find(mark), text.size()));
  }
  return text;
}

std::string first_line_of(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace lockstep
