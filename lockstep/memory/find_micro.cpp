#include "lockstep/memory/find_micro.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/units.h"
#include "lockstep/comm/extremes.h"
#include "lockstep/memory/memory_meter.h"
#include "lockstep/memory/out_of_memory.h"

namespace lockstep::memory {
namespace {

constexpr double kFirstShare = 0.7;  // of the free memory
constexpr std::int64_t kLargestGuess = 512;
constexpr std::size_t kMostTries = 12;
// Matrix units are fastest with multiples of this size.
constexpr std::int64_t kRound = 8;

std::int64_t rounded(std::int64_t size) {
  return size > 2 * kRound ? size / kRound * kRound : size;
}

}  // namespace

// Returns the size on the line through the two tries that are nearest to it.
std::int64_t MicroSearch::predicted(std::int64_t bytes) const {
  auto known = tries_;
  std::sort(known.begin(), known.end(),
            [](const Tried& a, const Tried& b) { return a.size < b.size; });
  std::erase_if(known, [](const Tried& t) { return t.peak_bytes == 0; });
  if (known.size() < 2) return 2 * known.back().size;
  auto upper = std::find_if(known.begin() + 1, known.end() - 1,
                            [&](const Tried& t) { return t.peak_bytes >= bytes; });
  const auto& lower = *(upper - 1);
  const auto grown = static_cast<double>(upper->peak_bytes - lower.peak_bytes);
  if (grown <= 0) return 2 * upper->size;
  const auto more = static_cast<double>(bytes - lower.peak_bytes) / grown;
  const auto size = static_cast<double>(lower.size) +
                    more * static_cast<double>(upper->size - lower.size);
  return static_cast<std::int64_t>(std::clamp(size, 1.0, 1e9));
}

const Tried& MicroSearch::smallest() const {
  return *std::min_element(
      tries_.begin(), tries_.end(),
      [](const Tried& a, const Tried& b) { return a.size < b.size; });
}

std::optional<std::int64_t> MicroSearch::next() const {
  const auto most = std::min(limits_.most, fails_.value_or(limits_.most + 1) - 1);
  if (fits_ >= most || tries_.size() >= kMostTries) return std::nullopt;
  // Most often the whole share fits: that is one try, and the libraries have tuned
  // themselves for just this size then.
  if (tries_.empty() && most <= kLargestGuess) return most;
  const auto small_tries =
      std::count_if(tries_.begin(), tries_.end(),
                    [&](const Tried& t) { return t.size < limits_.most; });
  if (small_tries < 2) {
    const std::int64_t small = small_tries == 0 ? 1 : 4;
    return std::clamp(small, fits_ + 1, most);
  }
  if (small_tries == 2) {
    const auto free = static_cast<double>(limits_.free_bytes);
    const auto guess =
        smallest().peak_bytes + static_cast<std::int64_t>(kFirstShare * free);
    return std::clamp(std::min(rounded(predicted(guess)), kLargestGuess), fits_ + 1,
                      most);
  }
  // A sixteenth is not worth a try.
  const auto close = fits_ + std::max<std::int64_t>(1, fits_ / 16);
  const auto size = rounded(predicted(limits_.target_bytes));
  if (most < close || (fits_ > 0 && size <= close && size >= fits_)) {
    return std::nullopt;
  }
  const bool far = size > fits_ && size <= most;
  return far ? size : std::clamp(rounded((fits_ + most + 1) / 2), fits_ + 1, most);
}

void MicroSearch::observe(const Tried& tried) {
  tries_.push_back(tried);
  if (tried.fits) {
    fits_ = std::max(fits_, tried.size);
  } else {
    fails_ = std::min(fails_.value_or(tried.size), tried.size);
  }
}

FoundMicroBatch find_micro_batch(const MicroBatchSearch& wanted) {
  const auto begin = Clock::system().now();
  const auto device = wanted.world.data().device();
  auto& cpu = wanted.world.cpu();
  // memory.host_limit is what there is to fill on the host, and it counts already.
  MemoryMeter meter(device, device.is_cpu() ? wanted.limit : nullptr);
  const auto start_count = [&] {
    if (auto* own = wanted.model.own_backward()) own->release_memory();
    empty_cache(device);
    meter.restart_peak();
  };
  StepStart start(wanted.model, device);
  start.take();
  start_count();
  const auto available = comm::gather_extremes(meter.available_bytes(), cpu).smallest;
  const auto target =
      static_cast<std::int64_t>(std::min(wanted.config.target, wanted.config.fraction) *
                                static_cast<double>(available));
  const auto used = comm::gather_extremes(meter.peak_bytes(), cpu).largest;
  MicroSearch search(
      {.most = wanted.most, .free_bytes = available - used, .target_bytes = target});
  while (const auto size = search.next()) {
    start_count();
    const bool here = wanted.try_step(*size);
    const bool everywhere = comm::gather_extremes(here ? 1 : 0, cpu).smallest == 1;
    const auto peak =
        everywhere ? comm::gather_extremes(meter.peak_bytes(), cpu).largest : 0;
    search.observe({*size, everywhere && peak <= target, peak});
    start.restore();
  }
  start_count();  // a try's memory is not a step's
  if (search.found() == 0) {
    throw Error(Fault::hardware, "batch.micro: not even 1 sample fits into ",
                units::format_bytes(target), ", which is memory.target ",
                wanted.config.target, " of the memory of the device; raise ",
                "memory.target, or choose a smaller model or precision.mode=bf16");
  }
  std::int64_t peak = 0;
  for (const auto& tried : search.tries()) {
    if (tried.size == search.found()) peak = tried.peak_bytes;
  }
  return {search.found(),
          fmt::format("{} of {} samples at once take {} of {} ({} tries in {:.1f} s)",
                      search.found(), wanted.most, units::format_bytes(peak),
                      units::format_bytes(available), search.tries().size(),
                      seconds_between(begin, Clock::system().now()))};
}

}  // namespace lockstep::memory
