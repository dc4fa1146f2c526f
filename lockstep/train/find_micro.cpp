#include "lockstep/train/find_micro.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/units.h"
#include "lockstep/train/memory_meter.h"
#include "lockstep/train/out_of_memory.h"

namespace lockstep::train {
namespace {

constexpr double kFirstShare = 0.7;  // of the free memory
constexpr std::int64_t kLargestGuess = 512;
constexpr std::size_t kMostTries = 12;
// Sizes that matrix units like.
constexpr std::int64_t kRound = 8;

std::int64_t rounded(std::int64_t size) {
  return size > 2 * kRound ? size / kRound * kRound : size;
}

}  // namespace

// On the line through the two tries that are nearest to where it goes.
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
  // Most often all of it fits: that is one try, and the libraries have tuned themselves
  // for just this size then.
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

namespace {

struct Agreed {
  std::int64_t largest = 0, smallest = 0;
};

// Over the ranks.
Agreed agree(std::int64_t own, comm::Communicator& cpu) {
  auto all = torch::full({1}, own, torch::kInt64);
  if (cpu.size() > 1) {
    const auto mine = all;
    all = torch::empty({cpu.size()}, torch::kInt64);
    cpu.all_gather(all, mine).wait();
  }
  return {all.max().item<std::int64_t>(), all.min().item<std::int64_t>()};
}

// A step of which nothing is kept.
bool runs(const FindParts& parts, std::int64_t size) {
  const auto device = parts.world.data().device();
  Tally tally(parts.task, device);
  bool fits = true;
  data::Batch batch;
  try {
    batch = made_up_batch(parts.spec, size, device);
    batch.global_size = size * parts.world.size();
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    fits = false;
  }
  // A step may ask the other ranks for what targets weigh: all begin it, or none.
  if (agree(fits ? 1 : 0, parts.world.cpu()).smallest == 0) return false;
  parts.strategy.begin_step();
  try {
    parts.step.set_micro_batch(size);
    parts.step.backward(batch, tally);
    tally.means();  // waits for the device
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    fits = false;
  }
  parts.strategy.finish(/*failed=*/!fits);
  return fits;
}

}  // namespace

std::string find_micro_batch(const FindParts& parts) {
  const auto begin = Clock::system().now();
  const auto device = parts.world.data().device();
  auto& cpu = parts.world.cpu();
  // On the host memory.host_limit is what there is to fill, and it counts already.
  const bool on_host = device.is_cpu() && parts.limit;
  MemoryMeter meter(device, on_host ? &*parts.limit : nullptr);
  const auto start_count = [&] {
    empty_cache(device);
    meter.restart_peak();
  };
  StepStart start(parts.model, device);
  start.take();
  start_count();
  const auto available = agree(meter.available_bytes(), cpu).smallest;
  const auto& memory = parts.config.memory;
  const auto target = static_cast<std::int64_t>(
      std::min(memory.target, memory.fraction) * static_cast<double>(available));
  const auto most = parts.step.micro_batch();
  MicroSearch search({.most = most,
                      .free_bytes = available - agree(meter.peak_bytes(), cpu).largest,
                      .target_bytes = target});
  while (const auto size = search.next()) {
    start_count();
    const bool here = runs(parts, *size);
    const bool everywhere = agree(here ? 1 : 0, cpu).smallest == 1;
    const auto peak = everywhere ? agree(meter.peak_bytes(), cpu).largest : 0;
    search.observe({*size, everywhere && peak <= target, peak});
    start.restore();
  }
  start_count();  // what a try took is no step's
  if (search.found() == 0) {
    throw Error(Fault::hardware, "batch.micro: not even 1 sample fits into ",
                units::format_bytes(target), ", which is memory.target ",
                parts.config.memory.target, " of the memory of the device; raise ",
                "memory.target, or choose a smaller model or precision.mode=bf16");
  }
  parts.step.set_micro_batch(search.found());
  std::int64_t peak = 0;
  for (const auto& tried : search.tries()) {
    if (tried.size == search.found()) peak = tried.peak_bytes;
  }
  return fmt::format("{} of {} samples at once take {} of {} ({} tries in {:.1f} s)",
                     search.found(), most, units::format_bytes(peak),
                     units::format_bytes(available), search.tries().size(),
                     seconds_between(begin, Clock::system().now()));
}

}  // namespace lockstep::train
