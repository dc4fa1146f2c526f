#include "lockstep/memory/memory_meter.h"

#include <limits>

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>

namespace lockstep::memory {
namespace {

// Half of the largest number: sums of it and of used bytes still fit.
constexpr auto kNoLimit = std::numeric_limits<std::int64_t>::max() / 2;

auto reserved_on(const torch::Device& device) {
  return at::getDeviceAllocator(device.type())
      ->getDeviceStats(device.index())
      .reserved_bytes[0];
}

}  // namespace

MemoryMeter::MemoryMeter(const torch::Device& device, HostMemoryLimit* host)
    : device_(device), host_(host) {
  if (device.is_meta()) deferred_.emplace();
  if (device.is_cpu() && host == nullptr) host_ = &own_.emplace(kNoLimit);
}

std::int64_t MemoryMeter::used_bytes() const {
  if (deferred_) return deferred_->used_bytes();
  return host_ != nullptr ? host_->used_bytes() : reserved_on(device_).current;
}

std::int64_t MemoryMeter::peak_bytes() const {
  if (deferred_) return deferred_->peak_bytes();
  return host_ != nullptr ? host_->peak_bytes() : reserved_on(device_).peak;
}

void MemoryMeter::restart_peak() {
  if (deferred_) return deferred_->restart_peak();
  if (host_ != nullptr) return host_->restart_peak();
  at::getDeviceAllocator(device_.type())->resetPeakStats(device_.index());
}

std::int64_t MemoryMeter::available_bytes() const {
  if (deferred_) return kNoLimit;
  if (host_ != nullptr) return host_->limit_bytes();
  const auto [free, total] =
      at::getDeviceAllocator(device_.type())->getMemoryInfo(device_.index());
  return static_cast<std::int64_t>(free) + reserved_on(device_).current;
}

}  // namespace lockstep::memory
