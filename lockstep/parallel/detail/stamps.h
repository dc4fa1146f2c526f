#pragma once

#include <optional>
#include <vector>

#include <c10/core/Event.h>
#include <torch/torch.h>

#include "lockstep/base/clock.h"
#include "lockstep/parallel/engine.h"

namespace lockstep::parallel::detail {

// Records when the buckets of a step were ready, on the host's and the GPU's clock.
class Stamps {
 public:
  Stamps(const torch::Device& device, std::size_t buckets);

  // Events of a stream that is captured have no time: none are recorded then.
  void pause(bool on) noexcept { paused_ = on; }

  void begin_step();
  // Call it before the collective starts, on the stream that has filled the bucket.
  void ready(std::size_t bucket);
  void begin_wait();
  void end_wait();

  const ExchangeTimes& host() const noexcept { return host_; }
  // Returns the times of the step before: no thread waits for a device to read them.
  const ExchangeTimes& device() const noexcept { return of_device_; }

 private:
  // The events of one step, on the streams of the device.
  struct Marks {
    c10::Event begin, wait, end;
    std::vector<c10::Event> ready;
    bool complete = false;  // all were recorded, and have not been read yet
  };

  void record(c10::Event& event) const;
  void read(Marks& marks);

  torch::Device device_;
  SteadyTime begin_, wait_begin_;
  ExchangeTimes host_, of_device_;
  std::vector<Marks> marks_;  // two that take turns; none on a CPU
  std::size_t turn_ = 0;
  bool paused_ = false;
};

}  // namespace lockstep::parallel::detail
