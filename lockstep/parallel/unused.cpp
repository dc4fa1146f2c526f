#include "lockstep/parallel/detail/unused.h"

#include "lockstep/base/str.h"
#include "lockstep/base/text.h"

namespace lockstep::parallel::detail {

std::string describe_unused(const std::vector<Parameter>& parameters,
                            const std::vector<char>& used, comm::Communicator& cpu) {
  constexpr std::size_t kMost = 10;
  const auto count = static_cast<std::int64_t>(parameters.size());
  const auto mine = torch::zeros({count}, torch::kUInt8);
  for (std::size_t i = 0; i < used.size(); ++i) {
    mine.mutable_data_ptr<std::uint8_t>()[i] = used[i] ? 1 : 0;
  }
  const auto all = torch::zeros({cpu.size() * count}, torch::kUInt8);
  cpu.all_gather(all, mine).wait();
  const auto* flag = all.const_data_ptr<std::uint8_t>();
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    std::vector<std::string> ranks;
    for (int r = 0; r < cpu.size(); ++r) {
      if (flag[r * count + static_cast<std::int64_t>(i)] == 0) ranks.push_back(str(r));
    }
    if (ranks.empty()) continue;
    texts.push_back(str("'", parameters[i].name, "' on ",
                        static_cast<int>(ranks.size()) == cpu.size()
                            ? "every rank"
                            : str("rank ", text::join(ranks, ", "))));
  }
  const auto total = texts.size();
  if (total > kMost) {
    texts.resize(kMost);
    texts.push_back(str("and ", total - kMost, " more"));
  }
  return str("parallel: parameters took no part in the loss: ", text::join(texts, "; "),
             "; set parallel.find_unused_parameters=true if that is meant, or freeze "
             "them (requires_grad false)");
}

}  // namespace lockstep::parallel::detail
