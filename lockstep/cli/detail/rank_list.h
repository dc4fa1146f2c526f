#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

// Returns the numbers of "1,2,3", as --ranks has them; throws Fault::config if it is no
// list of different sizes.
std::vector<int> rank_list(const std::string& list);

}  // namespace lockstep::cli
