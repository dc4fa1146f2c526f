#include "lockstep/launcher/activity.h"

#include <numeric>
#include <string>

#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/text.h"

namespace lockstep::launcher {
namespace {

constexpr std::int64_t kLimitBytes = 64 << 10;

// The driver averages over up to a second, so asking more often tells nothing new.
constexpr std::chrono::milliseconds kGpuInterval{500};

std::int64_t whole(const std::string& word) {
  return text::to_integer(word).value_or(0);
}

// "name: 4711" in /proc/<pid>/io; 0 if it is not there.
std::int64_t counter(const std::string& io, const std::string& name) {
  for (const auto& line : text::split(io, '\n')) {
    if (!text::starts_with(line, name + ": ")) continue;
    return whole(line.substr(name.size() + 2));
  }
  return 0;
}

// What threads that could run have waited for a CPU: a process that a crowded machine
// starves is no idle one.
double seconds_in_run_queues(const std::filesystem::path& tasks) {
  double seconds = 0;
  std::error_code error;
  std::filesystem::directory_iterator at(tasks, error);
  for (; !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    try {
      const auto words =
          text::split(files::read(at->path() / "schedstat", kLimitBytes), ' ');
      if (words.size() > 1) seconds += 1e-9 * static_cast<double>(whole(words[1]));
    } catch (const Error&) {  // the thread has ended meanwhile
    }
  }
  return seconds;
}

// Returns the words of "4711 (name, which may hold anything) S ..." behind the name.
std::vector<std::string> stat_words(const std::filesystem::path& process) {
  const auto stat = files::read(process / "stat", kLimitBytes);
  const auto name_end = stat.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= stat.size()) return {};
  return text::split(stat.substr(name_end + 2), ' ');
}

}  // namespace

char process_state(pid_t pid, const std::filesystem::path& proc) {
  try {
    const auto words = stat_words(proc / std::to_string(pid));
    return words.empty() || words[0].empty() ? 'X' : words[0][0];
  } catch (const Error&) {
    return 'X';
  }
}

std::optional<Activity> activity_of(pid_t pid, const std::filesystem::path& proc) {
  // The state is the third word of the file.
  constexpr std::size_t kMajorFaults = 12 - 3, kUserTime = 14 - 3;
  const auto process = proc / std::to_string(pid);
  try {
    const auto words = stat_words(process);
    if (words.size() <= kUserTime + 1) return std::nullopt;
    const auto io = files::read(process / "io", kLimitBytes);
    const auto ticks = whole(words[kUserTime]) + whole(words[kUserTime + 1]);
    return Activity{
        .cpu_seconds =
            static_cast<double>(ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK)) +
            seconds_in_run_queues(process / "task"),
        .io_bytes = counter(io, "rchar") + counter(io, "wchar"),
        .storage_bytes = counter(io, "read_bytes") + counter(io, "write_bytes"),
        .major_page_faults = whole(words[kMajorFaults])};
  } catch (const Error&) {
    return std::nullopt;
  }
}

GpuWatch::GpuWatch(std::vector<GpusOfRank> gpus_by_rank, const Clock& clock)
    : gpus_by_rank_(std::move(gpus_by_rank)), clock_(clock) {}

void GpuWatch::refresh() {
  const auto now = clock_.now();
  if (read_ && now - *read_ < kGpuInterval) return;
  if (!meter_) meter_ = std::make_unique<hardware::GpuMeter>();
  statuses_ = meter_->read(hardware::Counters::quick);
  read_ = now;
}

std::optional<bool> GpuWatch::is_busy(int local_rank) {
  auto gpus = gpus_by_rank_.at(static_cast<std::size_t>(local_rank));
  if (gpus && gpus->empty()) return false;
  refresh();
  if (!gpus) {
    gpus.emplace(statuses_.size());
    std::iota(gpus->begin(), gpus->end(), 0);
  }
  for (const int gpu : *gpus) {
    const auto index = static_cast<std::size_t>(gpu);
    if (index >= statuses_.size()) return std::nullopt;
    const auto percent = statuses_[index].utilization_percent;
    if (!percent) return std::nullopt;
    if (*percent > 0) return true;
  }
  return false;
}

}  // namespace lockstep::launcher
