#include "lockstep/launcher/activity.h"

#include <condition_variable>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>

#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/text.h"

namespace lockstep::launcher {
namespace {

constexpr std::int64_t kLimitBytes = 64 << 10;

// The driver averages over up to a second, so asking more often tells nothing new.
constexpr std::chrono::milliseconds kGpuInterval{500};
constexpr std::chrono::milliseconds kGpuStale{3'000};

std::int64_t whole(const std::string& word) {
  return text::to_integer(word).value_or(0);
}

// Returns the number of "name: 4711" in /proc/<pid>/io; 0 if it is not there.
std::int64_t counter(const std::string& io, const std::string& name) {
  for (const auto& line : text::split(io, '\n')) {
    if (!text::starts_with(line, name + ": ")) continue;
    return whole(line.substr(name.size() + 2));
  }
  return 0;
}

// Returns the words of "4711 (name, which may hold anything) S ..." behind the name.
std::vector<std::string> stat_words(const std::filesystem::path& process) {
  const auto stat = files::read(process / "stat", kLimitBytes);
  const auto name_end = stat.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= stat.size()) return {};
  return text::split(stat.substr(name_end + 2), ' ');
}

struct Threads {
  // The time that runnable threads have waited for a CPU: a process that a crowded
  // machine starves is not idle.
  double queued_seconds = 0;
  bool in_kernel = false;  // one is in state D
};

Threads look_at_threads(const std::filesystem::path& tasks) {
  Threads threads;
  std::error_code error;
  std::filesystem::directory_iterator at(tasks, error);
  for (; !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    try {
      const auto words =
          text::split(files::read(at->path() / "schedstat", kLimitBytes), ' ');
      if (words.size() > 1) {
        threads.queued_seconds += 1e-9 * static_cast<double>(whole(words[1]));
      }
      const auto stat = stat_words(at->path());
      threads.in_kernel |= !stat.empty() && stat[0] == "D";
    } catch (const Error&) {  // the thread has ended meanwhile
    }
  }
  return threads;
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

bool is_ending(pid_t pid, const std::filesystem::path& proc) {
  // The state is the third word of the file, the flags are the ninth.
  constexpr std::size_t kFlags = 9 - 3;
  constexpr std::int64_t kExiting = 0x4;  // PF_EXITING
  try {
    const auto words = stat_words(proc / std::to_string(pid));
    if (words.size() <= kFlags) return true;
    return words[0] == "Z" || words[0] == "X" || (whole(words[kFlags]) & kExiting) != 0;
  } catch (const Error&) {
    return true;
  }
}

std::optional<Activity> read_activity(pid_t pid, const std::filesystem::path& proc) {
  // The state is the third word of the file.
  constexpr std::size_t kMajorFaults = 12 - 3, kUserTime = 14 - 3;
  const auto process = proc / std::to_string(pid);
  try {
    const auto words = stat_words(process);
    if (words.size() <= kUserTime + 1) return std::nullopt;
    const auto io = files::read(process / "io", kLimitBytes);
    const auto ticks = whole(words[kUserTime]) + whole(words[kUserTime + 1]);
    const auto threads = look_at_threads(process / "task");
    return Activity{
        .cpu_seconds =
            static_cast<double>(ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK)) +
            threads.queued_seconds,
        .io_bytes = counter(io, "rchar") + counter(io, "wchar"),
        .storage_bytes = counter(io, "read_bytes") + counter(io, "write_bytes"),
        .major_page_faults = whole(words[kMajorFaults]),
        .in_kernel = threads.in_kernel};
  } catch (const Error&) {
    return std::nullopt;
  }
}

struct GpuWatch::Shared {
  std::mutex mutex;  // guards all of these
  std::condition_variable wake;
  bool over = false;
  std::vector<hardware::GpuStatus> statuses;
  std::optional<SteadyTime> read;
};

GpuWatch::GpuWatch(std::vector<GpusOfRank> gpus_by_rank, const Clock& clock, Read read)
    : gpus_by_rank_(std::move(gpus_by_rank)), clock_(clock), read_(std::move(read)) {}

GpuWatch::~GpuWatch() {
  if (!shared_) return;
  const std::lock_guard guard(shared_->mutex);
  shared_->over = true;
  shared_->wake.notify_all();
}

void GpuWatch::ask_again_and_again(Shared& shared, const Clock& clock, Read read) {
  std::optional<hardware::GpuMeter> meter;  // opening a driver may hang, too
  if (!read) {
    meter.emplace();
    read = [&] { return meter->read(hardware::Counters::quick); };
  }
  std::unique_lock lock(shared.mutex);
  while (!shared.over) {
    lock.unlock();
    auto statuses = read();
    const auto now = clock.now();
    lock.lock();
    shared.statuses = std::move(statuses);
    shared.read = now;
    shared.wake.wait_for(lock, kGpuInterval, [&] { return shared.over; });
  }
}

std::optional<bool> GpuWatch::is_busy(int local_rank) {
  auto gpus = gpus_by_rank_.at(static_cast<std::size_t>(local_rank));
  if (gpus && gpus->empty()) return false;
  if (!shared_) {
    shared_ = std::make_shared<Shared>();
    // It is detached: a thread that waits for a driver can not be joined.
    std::thread([shared = shared_, &clock = clock_, read = read_] {
      ask_again_and_again(*shared, clock, read);
    }).detach();
  }
  const std::lock_guard guard(shared_->mutex);
  if (!shared_->read || clock_.now() - *shared_->read > kGpuStale) return std::nullopt;
  const auto& statuses = shared_->statuses;
  if (!gpus) {
    gpus.emplace(statuses.size());
    std::iota(gpus->begin(), gpus->end(), 0);
  }
  for (const int gpu : *gpus) {
    const auto index = static_cast<std::size_t>(gpu);
    if (index >= statuses.size()) return std::nullopt;
    const auto percent = statuses[index].utilization_percent;
    if (!percent) return std::nullopt;
    if (*percent > 0) return true;
  }
  return false;
}

}  // namespace lockstep::launcher
