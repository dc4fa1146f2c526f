#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "lockstep/data/batch.h"
#include "lockstep/data/loader.h"

namespace lockstep::data {

// Brings the batches of a loader onto the device. On a GPU the next batch is fetched by
// a stream of its own while the current one is computed with, so that a step finds its
// batch there; on a CPU the loader's batches are passed on as they are.
//
// Threads:  next() by one thread, the only one that calls the loader's.
// Stream:   a batch may be used on the stream that is current in next(); what was
//           started there is waited for before its memory is written again.
// Lifetime: the loader outlives it; the destructor waits for copies under way.
class DeviceFeed {
 public:
  // Only the tensors in `wanted` are copied to the device, and the others are left out
  // of the batch, an input or a target undefined; none: all are.
  DeviceFeed(Loader& loader, const torch::Device& device,
             std::optional<std::vector<std::string>> wanted = std::nullopt);
  ~DeviceFeed();
  DeviceFeed(const DeviceFeed&) = delete;
  DeviceFeed& operator=(const DeviceFeed&) = delete;

  // Returns the batch of Loader::next(); its tensors are on the device and hold until
  // the next call.
  const Batch* next();

  // Returns the batch that next() will return, in memory of the host, if it is there
  // already; else nullptr. It holds until then.
  const Batch* upcoming() const;

 private:
  class Copies;

  Loader& loader_;
  std::unique_ptr<Copies> copies_;  // none on a CPU
};

}  // namespace lockstep::data
