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

}  // namespace lockstep
