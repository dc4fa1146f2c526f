#pragma once

#include <algorithm>
#include <string>

#include <torch/torch.h>

#include "lockstep/comm/communicator.h"

namespace lockstep::comm {

// Returns rank 0's text on every rank. Collective.
inline std::string broadcast_text(const std::string& own, Communicator& cpu) {
  if (cpu.size() == 1) return own;
  const auto length =
      torch::full({1}, static_cast<std::int64_t>(own.size()), torch::kInt64);
  cpu.broadcast(length, 0).wait();
  const auto bytes = torch::empty({length.item<std::int64_t>()}, torch::kUInt8);
  if (cpu.rank() == 0)
    std::copy(own.begin(), own.end(), bytes.data_ptr<std::uint8_t>());
  if (bytes.numel() > 0) cpu.broadcast(bytes, 0).wait();
  const auto* data = bytes.const_data_ptr<std::uint8_t>();
  return {data, data + bytes.numel()};
}

}  // namespace lockstep::comm
