#include "lockstep/cli/detail/rank_list.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::cli {

std::vector<int> rank_list(const std::string& list) {
  constexpr long long kMost = 1024;  // of parallel.ranks
  std::vector<int> sizes;
  for (const auto& word : text::split(list, ',')) {
    const auto number = text::to_integer(word);
    if (!number || *number < 1 || *number > kMost) {
      throw Error(Fault::config, "--ranks: '", word, "' of '", list,
                  "' is not a number of ranks from 1 to ", kMost,
                  "; write a list such as 1,2,3");
    }
    const auto ranks = static_cast<int>(*number);
    if (std::find(sizes.begin(), sizes.end(), ranks) != sizes.end()) {
      throw Error(Fault::config, "--ranks: ", ranks, " is in '", list,
                  "' twice; a rerun of one size is not compared here");
    }
    sizes.push_back(ranks);
  }
  return sizes;
}

}  // namespace lockstep::cli
