#include "lockstep/hardware/gpu_use.h"

#include <condition_variable>

#include "lockstep/hardware/detail/nvml.h"

namespace lockstep::hardware {

GpuUse::GpuUse(const Path& root, std::chrono::milliseconds every)
    : reader_(detail::read_use(root)) {
  if (!reader_) return;
  thread_ = std::jthread([this, every](const std::stop_token& stop) {
    std::mutex unused;
    std::condition_variable_any ended;
    std::unique_lock lock(unused);
    while (!stop.stop_requested()) {
      look();
      ended.wait_for(lock, stop, every, [] { return false; });
    }
  });
}

GpuUse::~GpuUse() = default;

void GpuUse::look() {
  auto busy = reader_->busy();
  const std::lock_guard lock(mutex_);
  samples_.push_back({Clock::system().now(), std::move(busy)});
}

std::optional<double> GpuUse::mean(const std::vector<std::string>& uuids,
                                   SteadyTime begin, SteadyTime end) const {
  const std::lock_guard lock(mutex_);
  double sum = 0;
  int count = 0;
  for (const auto& sample : samples_) {
    if (sample.time < begin || sample.time > end) continue;
    for (const auto& uuid : uuids) {
      const auto found = sample.busy.find(uuid);
      if (found == sample.busy.end()) continue;
      sum += found->second;
      ++count;
    }
  }
  if (count == 0) return std::nullopt;
  return sum / count;
}

}  // namespace lockstep::hardware
