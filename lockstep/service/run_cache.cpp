#include "lockstep/service/run_cache.h"

#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include "lockstep/base/error.h"
#include "lockstep/jobs/run_view.h"
#include "lockstep/monitor/metrics_text.h"
#include "lockstep/service/job_files.h"
#include "lockstep/service/refusal.h"

namespace lockstep::service {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::chrono::milliseconds kViewAge{250};
// What an entry takes beside its text.
constexpr std::size_t kEntryBytes = 512;

std::string read_view(const JobFolder& folder) {
  try {
    const ReadableRun run(folder);
    auto json =
        Json::parse(jobs::to_json(jobs::view_of(run::RunDirectory::open(run.path()))));
    for (const auto* key : {"path", "recipe", "command", "host", "pid"}) {
      json.erase(key);
    }
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  } catch (const Error&) {
    return "";  // not made yet
  }
}

// All of it is held while it is read, several times over; and a file of another user
// may claim any size, and another one a moment later.
std::vector<monitor::Metrics> metrics_in(const JobFile& file) {
  constexpr std::int64_t kLargest = 64 << 20;
  struct stat info {};
  if (file && ::fstat(file.get(), &info) == 0 && info.st_size > kLargest) {
    throw Refusal(Refused::too_large, "metrics: ", info.st_size, " bytes, and at most ",
                  kLargest,
                  " are read at once; read them as a stream (.../metrics/stream)");
  }
  return monitor::parse_metrics(files::read_tail(file.path(), kLargest));
}

}  // namespace

RunCache::RunCache(const Limits& limits, const Clock& clock)
    : limits_(limits),
      clock_(clock),
      views_(limits.view_bytes),
      metrics_(limits.metrics_bytes) {}

RunCache::Stamp RunCache::stamp_of(const files::Path& file) {
  struct stat info {};
  if (::lstat(file.c_str(), &info) != 0) return {};
  constexpr std::int64_t kNanoseconds = 1'000'000'000;
  return {static_cast<std::int64_t>(info.st_ino), info.st_size,
          info.st_mtim.tv_sec * kNanoseconds + info.st_mtim.tv_nsec};
}

std::string RunCache::view(const JobFolder& folder) {
  const auto run = folder.run();
  const auto record = stamp_of(run / "run.json");
  const auto now = clock_.now();
  {
    const std::lock_guard lock(mutex_);
    const auto* found = views_.find(run);
    if (found != nullptr && found->record == record && now - found->read < kViewAge) {
      return found->json;
    }
  }
  auto json = read_view(folder);
  // Not one that is not there yet, or any more: whoever removes runs forgets them once.
  if (json.empty()) return json;
  const std::lock_guard lock(mutex_);
  views_.put(run, {record, now, json}, json.size() + kEntryBytes);
  return json;
}

RunCache::Lines RunCache::metrics(const JobFolder& folder) {
  const auto file = folder.run() / "metrics.jsonl";
  // Before it is read: what comes in between is read the next time.
  const auto stamp = stamp_of(file);
  {
    const std::lock_guard lock(mutex_);
    const auto* found = metrics_.find(file);
    if (found != nullptr && found->stamp == stamp) return found->lines;
  }
  auto lines = std::make_shared<const std::vector<monitor::Metrics>>(
      metrics_in(JobFile(folder, "run/metrics.jsonl")));
  const auto bytes = static_cast<std::size_t>(stamp.bytes);
  if (stamp == Stamp{} || bytes > limits_.largest_file) return lines;
  const std::lock_guard lock(mutex_);
  metrics_.put(file, {stamp, lines}, bytes + kEntryBytes);
  return lines;
}

void RunCache::forget(const JobFolder& folder) {
  const std::lock_guard lock(mutex_);
  views_.erase(folder.run());
  metrics_.erase(folder.run() / "metrics.jsonl");
}

std::size_t RunCache::kept_views() const {
  const std::lock_guard lock(mutex_);
  return views_.size();
}

std::size_t RunCache::kept_metrics() const {
  const std::lock_guard lock(mutex_);
  return metrics_.size();
}

}  // namespace lockstep::service
