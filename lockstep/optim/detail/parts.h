#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/optim/optimizer.h"

// Elements of a flat buffer that have seen different numbers of steps.
namespace lockstep::optim::detail {

// The elements that have seen equally many steps, with their options.
struct Part {
  std::int64_t behind = 0;  // by so many steps
  std::vector<OptionRange> ranges;
};

// Returns the elements to update in a step that leaves `unused` out: a part for every
// number of steps, each in order. One part if nothing was ever left out.
std::vector<Part> cut_by_steps(const std::vector<OptionRange>& ranges,
                               const std::vector<Elements>& unused,
                               const std::vector<Behind>& behind);

// Puts the elements of `unused` one step more behind.
std::vector<Behind> one_more(const std::vector<Behind>& behind,
                             const std::vector<Elements>& unused);

}  // namespace lockstep::optim::detail
