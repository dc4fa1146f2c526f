#pragma once

#include <random>
#include <string>
#include <vector>

namespace lockstep::test {

// Returns the bytes with some of them changed, cut out, repeated, or replaced by one of
// the pieces, which are what the format is made of.
inline std::string damaged(std::string bytes, const std::vector<std::string>& pieces,
                           std::mt19937_64& random) {
  const auto pick = [&](std::size_t below) {
    return static_cast<std::size_t>(random() % below);
  };
  const auto times = 1 + pick(4);
  for (std::size_t i = 0; i < times; ++i) {
    const auto at = pick(bytes.size() + 1);
    switch (pick(5)) {
      case 0:
        bytes.insert(at, pieces[pick(pieces.size())]);
        break;
      case 1:
        bytes.erase(at, pick(12));
        break;
      case 2:
        bytes.replace(at, pick(12), pieces[pick(pieces.size())]);
        break;
      case 3:
        bytes.insert(at, bytes.substr(pick(bytes.size() + 1), pick(80)));
        break;
      default:
        if (at < bytes.size()) bytes[at] = static_cast<char>(random());
    }
  }
  return bytes;
}

}  // namespace lockstep::test
