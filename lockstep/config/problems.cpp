#include "lockstep/config/detail/problems.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::config::detail {

void Problems::add(std::string_view place, std::string_view key,
                   std::string_view text) {
  std::string line(place);
  if (!line.empty()) line += ": ";
  if (!key.empty()) line += str(key, ": ");
  lines_.push_back(line += text);
}

void Problems::throw_if_any() const {
  if (lines_.empty()) return;
  constexpr std::size_t kMost = 10;
  std::string all;
  for (std::size_t i = 0; i < std::min(kMost, lines_.size()); ++i) {
    all += (i > 0 ? "\n" : "") + lines_[i];
  }
  if (lines_.size() > kMost) all += str("\nand ", lines_.size() - kMost, " more");
  throw Error(Fault::config, all);
}

}  // namespace lockstep::config::detail
