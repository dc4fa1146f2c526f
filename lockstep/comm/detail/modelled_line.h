#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "lockstep/comm/communicator.h"

namespace lockstep::comm::detail {

using Occupy = std::function<void(std::chrono::nanoseconds)>;

// The thread or stream that modelled collectives occupy, one after the other.
class Line {
 public:
  virtual ~Line() = default;
  // The time begins when everything before it on the line is over, and on a GPU when
  // the current stream has come to this point.
  virtual std::unique_ptr<Pending::Impl> take(std::chrono::nanoseconds time) = 0;
  virtual void abort() noexcept {}
};

// Makes a stream of the device; throws Fault::hardware in a build without CUDA.
std::unique_ptr<Line> make_stream_line(const torch::Device& device, Occupy occupy);

}  // namespace lockstep::comm::detail
