#pragma once

#include <optional>

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

namespace lockstep::kernels {

// A stream of a GPU for one loop: CUDA graphs can not capture the default one, and what
// they hold must have been warmed up on the stream that they capture. On a CPU it is
// nothing.
class OwnStream {
 public:
  OwnStream(const torch::Device& device, bool wanted) : device_(device) {
    if (!wanted || device.is_cpu()) return;
    stream_ =
        c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  }

  // While it lives the stream is the current one: it waits for what was launched on the
  // one before it, which at the end waits for this one.
  class Scope {
   public:
    explicit Scope(const OwnStream& own) {
      if (!own.stream_) return;
      outer_ = c10::impl::VirtualGuardImpl(own.device_.type()).getStream(own.device_);
      if (*outer_ == *own.stream_) {  // a scope within a scope
        outer_.reset();
        return;
      }
      wait(*own.stream_, *outer_);
      guard_.emplace(*own.stream_);
    }
    ~Scope() {
      if (!guard_) return;
      try {
        wait(*outer_, guard_->current_stream());
      } catch (...) {  // NOLINT: the device is lost; whoever uses it next says so
      }
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    static void wait(const c10::Stream& waiting, const c10::Stream& other) {
      c10::Event launched(other.device_type());
      launched.record(other);
      launched.block(waiting);
    }

    std::optional<c10::Stream> outer_;
    std::optional<c10::StreamGuard> guard_;
  };

 private:
  torch::Device device_;
  std::optional<c10::Stream> stream_;
};

}  // namespace lockstep::kernels
