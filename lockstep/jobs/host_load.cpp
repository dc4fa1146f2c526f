#include "lockstep/jobs/host_load.h"

#include <algorithm>
#include <chrono>

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/text.h"

namespace lockstep::jobs {
namespace {

std::set<int> usable_cpus() {
  std::set<int> cpus;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (::sched_getaffinity(0, sizeof(mask), &mask) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &mask)) cpus.insert(cpu);
  }
  return cpus;
}

double cpu_seconds_of(int who) {
  rusage usage{};
  ::getrusage(who, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::string read_stat() {
  constexpr std::int64_t kLargest = 16 << 20;
  try {
    return files::read("/proc/stat", kLargest);
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

double busy_seconds(const std::string& stat, const std::set<int>& cpus,
                    double ticks_per_second) {
  constexpr std::size_t kIdle = 4;
  constexpr std::size_t kWaiting = 5;  // for a disk
  constexpr std::size_t kColumns = 8;  // what comes behind is counted in these, too
  double ticks = 0;
  for (const auto& line : text::split(stat, '\n')) {
    std::vector<std::string> words;
    for (const auto& word : text::split(line, ' ')) {
      if (!word.empty()) words.emplace_back(word);
    }
    if (words.size() < kColumns || !words[0].starts_with("cpu")) continue;
    const auto number = text::to_integer(words[0].substr(3));
    if (!number || !cpus.contains(static_cast<int>(*number))) continue;
    for (std::size_t i = 1; i < kColumns; ++i) {
      if (i == kIdle || i == kWaiting) continue;
      ticks += static_cast<double>(text::to_integer(words[i]).value_or(0));
    }
  }
  return ticks / ticks_per_second;
}

OtherLoad::OtherLoad() : cpus_(usable_cpus()), begin_(now()) {}

OtherLoad::Moment OtherLoad::now() const {
  const auto wall = std::chrono::steady_clock::now().time_since_epoch();
  return {.wall = std::chrono::duration<double>(wall).count(),
          .busy = busy_seconds(read_stat(), cpus_,
                               static_cast<double>(::sysconf(_SC_CLK_TCK))),
          .own = cpu_seconds_of(RUSAGE_SELF) + cpu_seconds_of(RUSAGE_CHILDREN)};
}

double OtherLoad::share() const {
  const auto end = now();
  const double all = (end.wall - begin_.wall) * static_cast<double>(cpus_.size());
  if (all <= 0) return 0;
  const double others = (end.busy - begin_.busy) - (end.own - begin_.own);
  return std::clamp(others / all, 0.0, 1.0);
}

}  // namespace lockstep::jobs
