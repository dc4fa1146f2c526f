#include "lockstep/comm/detail/difference.h"

#include "lockstep/base/str.h"

namespace lockstep::comm::detail {

std::string signature(const Call& call) {
  if (call.kind == Kind::all_to_all) {
    return str("all_to_all of ", c10::toString(call.in.scalar_type()));
  }
  if (call.kind != Kind::all_gather_uneven) return describe(call);
  auto text = str("all_gather of ", c10::toString(call.in.scalar_type()));
  for (const auto& out : call.out) text += ::lockstep::str(" ", out.sizes());
  return text;
}

std::string difference(const AskedBy& a, const AskedBy& b) {
  return str("comm: ranks issue different collectives: rank ", a.rank, " ",
             a.asked.signature, " at ", a.asked.place, ", rank ", b.rank, " ",
             b.asked.signature, " at ", b.asked.place,
             "; all ranks must issue the same ones in the same order");
}

std::string first_difference(const std::vector<Asked>& by_rank) {
  for (std::size_t r = 1; r < by_rank.size(); ++r) {
    if (by_rank[r].signature == by_rank[0].signature) continue;
    return difference({0, by_rank[0]}, {static_cast<int>(r), by_rank[r]});
  }
  return "";
}

std::string first_difference(const std::vector<Call>& by_rank) {
  std::vector<Asked> asked;
  asked.reserve(by_rank.size());
  for (const auto& call : by_rank) {
    asked.push_back({signature(call), str(call.site.file, ":", call.site.line)});
  }
  return first_difference(asked);
}

}  // namespace lockstep::comm::detail
