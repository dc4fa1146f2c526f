#include "lockstep/comm/detail/first_text.h"

#include <algorithm>
#include <cstring>

namespace lockstep::comm::detail {

std::optional<std::pair<int, std::string>> first_text(Communicator& cpu,
                                                      const std::string& own) {
  constexpr std::int64_t kBytes = 256;
  const auto mine = torch::zeros({kBytes}, torch::kUInt8);
  std::copy_n(own.begin(), std::min<std::size_t>(own.size(), kBytes - 1),
              mine.mutable_data_ptr<std::uint8_t>());
  const auto all = torch::zeros({cpu.size() * kBytes}, torch::kUInt8);
  cpu.all_gather(all, mine).wait();
  const auto* bytes = reinterpret_cast<const char*>(all.const_data_ptr<std::uint8_t>());
  for (int r = 0; r < cpu.size(); ++r) {
    const auto* text = bytes + r * kBytes;
    if (*text != '\0') return std::pair(r, std::string(text, ::strnlen(text, kBytes)));
  }
  return std::nullopt;
}

}  // namespace lockstep::comm::detail
