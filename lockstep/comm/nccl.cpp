// The only source that sees ProcessGroupNCCL.
#include "lockstep/comm/nccl.h"

#include <cstdlib>

#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "lockstep/base/error.h"
#include "lockstep/comm/detail/c10d.h"

namespace lockstep::comm {

std::string nccl_obstacle(const torch::Device& device) {
  if (!device.is_cuda()) return str("tensors are on ", device.str());
  if (!torch::cuda::is_available()) return "there is no GPU that can be used";
  if (device.index() >= static_cast<int>(torch::cuda::device_count())) {
    return str("there is no ", device.str());
  }
  return "";
}

std::unique_ptr<Communicator> make_nccl(const GroupOptions& options) {
  try {
    const c10::cuda::CUDAGuard guard(options.device);
    // send() and recv() say in their header that they take turns.
    ::setenv("TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING", "false", 0);
    auto nccl =
        c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
    nccl->timeout = options.timeout;
    auto group = c10::make_intrusive<c10d::ProcessGroupNCCL>(
        options.store, options.rank, options.size, nccl);
    // The group connects now and not at the first use: send and recv then share this
    // connection.
    group->setBoundDeviceId(options.device);
    group->eagerConnectSingleDevice(options.device);
    detail::C10dParts parts;
    parts.group = group;
    parts.name = "nccl";
    parts.traits.can_be_captured = true;
    parts.device = options.device;
    parts.store = options.store;
    parts.rank = options.rank;
    parts.size = options.size;
    parts.can_average = true;
    parts.cut_at_the_end = true;  // else c10d warns that it was not told
    // The pointer is weak: the group must be able to end while a caller could still cut
    // it.
    parts.cut = [weak = c10::weak_intrusive_ptr<c10d::ProcessGroupNCCL>(group)] {
      const auto alive = weak.lock();
      try {
        if (alive) alive->abort();
      } catch (const std::exception&) {
        // The group is being given up.
      }
    };
    parts.remake = [options](detail::Store store, int rank, int size) {
      auto part = options;
      part.store = std::move(store);
      part.rank = rank;
      part.size = size;
      return make_nccl(part);
    };
    auto communicator = detail::make_c10d(std::move(parts));
    communicator->barrier();
    return communicator;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(Fault::comm, "comm: rank ", options.rank, " of ", options.size,
                " could not join over nccl: ", detail::first_line(error));
  }
}

}  // namespace lockstep::comm
