#include "lockstep/optim/detail/parts.h"

#include <algorithm>
#include <map>

namespace lockstep::optim::detail {
namespace {

// Returns the first of the pieces, which are in order, that ends after `at`.
template <typename Pieces>
auto first_after(const Pieces& pieces, std::int64_t at) {
  return std::partition_point(pieces.begin(), pieces.end(),
                              [&](const auto& piece) { return piece.end <= at; });
}

bool is_in(const std::vector<Elements>& pieces, std::int64_t at) {
  const auto found = first_after(pieces, at);
  return found != pieces.end() && found->begin <= at;
}

std::int64_t steps_at(const std::vector<Behind>& behind, std::int64_t at) {
  const auto found = first_after(behind, at);
  return found != behind.end() && found->begin <= at ? found->steps : 0;
}

template <typename Pieces>
void add_cuts(std::vector<std::int64_t>& cuts, const Pieces& pieces) {
  for (const auto& piece : pieces) {
    cuts.push_back(piece.begin);
    cuts.push_back(piece.end);
  }
}

// Returns the places where a piece begins or ends.
std::vector<std::int64_t> find_cuts(const std::vector<Elements>& unused,
                                    const std::vector<Behind>& behind) {
  std::vector<std::int64_t> cuts;
  add_cuts(cuts, unused);
  add_cuts(cuts, behind);
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return cuts;
}

}  // namespace

std::vector<Part> cut_by_steps(const std::vector<OptionRange>& ranges,
                               const std::vector<Elements>& unused,
                               const std::vector<Behind>& behind) {
  const auto cuts = find_cuts(unused, behind);
  std::map<std::int64_t, Part> parts;
  for (const auto& range : ranges) {
    auto next = std::upper_bound(cuts.begin(), cuts.end(), range.begin);
    for (auto begin = range.begin; begin < range.end;) {
      const auto end = next == cuts.end() ? range.end : std::min(*next, range.end);
      if (!is_in(unused, begin)) {
        const auto steps = steps_at(behind, begin);
        auto& part = parts[steps];
        part.behind = steps;
        part.ranges.push_back({begin, end, range.lr_scale, range.weight_decay});
      }
      begin = end;
      if (next != cuts.end()) ++next;
    }
  }
  std::vector<Part> list;
  for (auto& [steps, part] : parts) list.push_back(std::move(part));
  return list;
}

std::vector<Behind> one_more(const std::vector<Behind>& behind,
                             const std::vector<Elements>& unused) {
  const auto cuts = find_cuts(unused, behind);
  std::vector<Behind> next;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    const auto steps = steps_at(behind, cuts[i]) + (is_in(unused, cuts[i]) ? 1 : 0);
    if (steps == 0) continue;
    const bool joins =
        !next.empty() && next.back().end == cuts[i] && next.back().steps == steps;
    if (joins) {
      next.back().end = cuts[i + 1];
    } else {
      next.push_back({cuts[i], cuts[i + 1], steps});
    }
  }
  return next;
}

}  // namespace lockstep::optim::detail
