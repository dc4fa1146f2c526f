#include "lockstep/hardware/gpu_use.h"

#include <condition_variable>

namespace lockstep::hardware {

GpuUse::GpuUse(const Path& root, std::chrono::milliseconds every) : meter_(root) {
  if (meter_.gpus().empty()) return;
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
  std::map<std::string, double> busy;
  const auto statuses = meter_.read(Counters::quick);
  for (std::size_t i = 0; i < statuses.size(); ++i) {
    const auto percent = statuses[i].utilization_percent;
    if (percent) busy[meter_.gpus()[i].uuid] = static_cast<double>(*percent) / 100;
  }
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
