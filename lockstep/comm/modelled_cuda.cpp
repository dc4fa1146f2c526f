// A stream on which modelled collectives pass.
#include <c10/core/Event.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "lockstep/comm/detail/modelled_line.h"

namespace lockstep::comm::detail {
namespace {

class EventPending : public Pending::Impl {
 public:
  EventPending(c10::Event end, const torch::Device& device)
      : end_(std::move(end)), device_(device) {}

  void wait() override { end_.block(c10::cuda::getCurrentCUDAStream(device_.index())); }
  bool done() override { return true; }  // wait() never blocks the host

 private:
  c10::Event end_;
  torch::Device device_;
};

struct Passing {
  std::shared_ptr<const Occupy> occupy;
  std::chrono::nanoseconds time;
};

void let_pass(void* data) {
  const std::unique_ptr<Passing> passing(static_cast<Passing*>(data));
  (*passing->occupy)(passing->time);
}

class StreamLine : public Line {
 public:
  StreamLine(const torch::Device& device, Occupy occupy)
      : device_(device),
        stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device.index())),
        occupy_(std::make_shared<const Occupy>(std::move(occupy))) {}

  std::unique_ptr<Pending::Impl> take(std::chrono::nanoseconds time) override {
    const c10::cuda::CUDAGuard guard(device_);
    c10::Event begin(torch::kCUDA), end(torch::kCUDA);
    begin.record(c10::cuda::getCurrentCUDAStream(device_.index()));
    begin.block(stream_);
    auto passing = std::make_unique<Passing>(Passing{occupy_, time});
    C10_CUDA_CHECK(cudaLaunchHostFunc(stream_.stream(), let_pass, passing.get()));
    static_cast<void>(passing.release());  // let_pass has it now
    end.record(stream_);
    return std::make_unique<EventPending>(std::move(end), device_);
  }

 private:
  torch::Device device_;
  c10::cuda::CUDAStream stream_;
  std::shared_ptr<const Occupy> occupy_;
};

}  // namespace

std::unique_ptr<Line> make_stream_line(const torch::Device& device, Occupy occupy) {
  return std::make_unique<StreamLine>(device, std::move(occupy));
}

}  // namespace lockstep::comm::detail
