#include "lockstep/train/window.h"

#include <algorithm>
#include <array>

#include <sys/resource.h>
#include <unistd.h>

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "lockstep/base/files.h"
#include "lockstep/base/text.h"

namespace lockstep::train {
namespace {

DeviceMemory memory_of_host() {
  // Second number of statm: pages that are resident.
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

constexpr std::size_t kNumbers = 10;

std::array<double, kNumbers> numbers_of(const RankWindow& window) {
  return {window.data_wait_seconds,
          window.compute_seconds,
          window.exchange_wait_seconds,
          window.forward_seconds,
          window.backward_seconds,
          static_cast<double>(window.samples),
          static_cast<double>(window.memory.allocated_bytes),
          static_cast<double>(window.memory.reserved_bytes),
          static_cast<double>(window.memory.total_bytes),
          static_cast<double>(window.memory.peak_bytes)};
}

RankWindow window_of(const double* numbers) {
  const auto whole = [&](int i) { return static_cast<std::int64_t>(numbers[i]); };
  return {.data_wait_seconds = numbers[0],
          .compute_seconds = numbers[1],
          .exchange_wait_seconds = numbers[2],
          .forward_seconds = numbers[3],
          .backward_seconds = numbers[4],
          .samples = whole(5),
          .memory = {whole(6), whole(7), whole(8), whole(9)}};
}

// Until its last gradient was there, beginning where all ranks had the last sums.
double busy(const RankWindow& window) {
  return window.data_wait_seconds + window.compute_seconds;
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

std::vector<RankWindow> gather(const RankWindow& own, comm::Communicator& cpu) {
  const auto ranks = static_cast<std::size_t>(cpu.size());
  const auto numbers = numbers_of(own);
  const auto mine = torch::empty({kNumbers}, torch::kFloat64);
  std::copy(numbers.begin(), numbers.end(), mine.mutable_data_ptr<double>());
  auto all = mine;
  if (ranks > 1) {
    all = torch::empty({cpu.size() * static_cast<std::int64_t>(kNumbers)},
                       torch::kFloat64);
    cpu.all_gather(all, mine).wait();
  }
  std::vector<RankWindow> windows;
  for (std::size_t r = 0; r < ranks; ++r) {
    windows.push_back(window_of(all.const_data_ptr<double>() + r * kNumbers));
  }
  return windows;
}

std::optional<Straggler> find_straggler(const std::vector<RankWindow>& ranks) {
  if (ranks.size() < 2) return std::nullopt;
  std::size_t last = 0;
  double sum = 0;
  double data_sum = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (busy(ranks[r]) > busy(ranks[last])) last = r;
    sum += busy(ranks[r]);
    data_sum += ranks[r].data_wait_seconds;
  }
  const auto others = static_cast<double>(ranks.size() - 1);
  const auto late = busy(ranks[last]) - (sum - busy(ranks[last])) / others;
  const auto data = ranks[last].data_wait_seconds;
  const auto data_late = data - (data_sum - data) / others;
  return Straggler{static_cast<int>(last), late,
                   data_late >= late / 2 ? "data wait" : "compute"};
}

}  // namespace lockstep::train
