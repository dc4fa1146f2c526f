#include "lockstep/parallel/detail/broadcast.h"

#include <map>

namespace lockstep::parallel::detail {
namespace {

using Kind = std::pair<c10::ScalarType, c10::DeviceType>;

// Returns a view as bytes: backends do not know every dtype of a buffer (bool, say).
torch::Tensor bytes_of(const torch::Tensor& tensor) {
  return tensor.contiguous().flatten().view(torch::kUInt8);
}

void broadcast_alike(const std::vector<torch::Tensor>& tensors,
                     comm::Communicator& communicator) {
  std::vector<torch::Tensor> parts;
  for (const auto& tensor : tensors) parts.push_back(bytes_of(tensor));
  const auto all = torch::cat(parts);
  communicator.broadcast(all, 0).wait();
  if (communicator.rank() == 0) return;
  std::int64_t offset = 0;
  for (const auto& tensor : tensors) {
    const auto size = static_cast<std::int64_t>(tensor.nbytes());
    const auto part = all.narrow(0, offset, size).view(tensor.scalar_type());
    tensor.copy_(part.view(tensor.sizes()));
    offset += size;
  }
}

}  // namespace

void broadcast_all(const std::vector<torch::Tensor>& tensors, comm::Communicator& data,
                   comm::Communicator& cpu) {
  if (data.size() == 1) return;
  const torch::NoGradGuard no_grad;
  std::map<Kind, std::vector<torch::Tensor>> alike;  // in the same order on every rank
  for (const auto& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    alike[{tensor.scalar_type(), tensor.device().type()}].push_back(tensor);
  }
  for (const auto& [kind, list] : alike) {
    const bool on_host = kind.second == torch::kCPU;
    broadcast_alike(list, on_host && !data.device().is_cpu() ? cpu : data);
  }
}

}  // namespace lockstep::parallel::detail
