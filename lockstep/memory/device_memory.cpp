#include "lockstep/memory/device_memory.h"

#include <algorithm>

#include <sys/resource.h>
#include <unistd.h>

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "lockstep/base/files.h"
#include "lockstep/base/text.h"

namespace lockstep::memory {
namespace {

DeviceMemory memory_of_host() {
  // The second number of statm counts the pages that are resident.
  const auto fields = text::split(files::read("/proc/self/statm", 4096), ' ');
  const auto pages = fields.size() > 1 ? text::to_integer(fields[1]).value_or(0) : 0;
  const auto page = static_cast<std::int64_t>(::sysconf(_SC_PAGESIZE));
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  constexpr std::int64_t kKibibyte = 1024;
  return {
      .allocated_bytes = pages * page,
      .reserved_bytes = pages * page,
      .total_bytes = ::sysconf(_SC_PHYS_PAGES) * page,
      .peak_bytes = std::max<std::int64_t>(pages * page, usage.ru_maxrss * kKibibyte)};
}

}  // namespace

DeviceMemory memory_of(const torch::Device& device) {
  if (device.is_cpu()) return memory_of_host();
  auto* allocator = at::getDeviceAllocator(device.type());
  const auto stats = allocator->getDeviceStats(device.index());
  const auto [free, total] = allocator->getMemoryInfo(device.index());
  return {stats.allocated_bytes[0].current,  // 0: all pools together
          stats.reserved_bytes[0].current, static_cast<std::int64_t>(total),
          stats.allocated_bytes[0].peak};
}

}  // namespace lockstep::memory
