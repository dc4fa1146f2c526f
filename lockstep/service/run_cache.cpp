#include "lockstep/service/run_cache.h"

#include <sys/stat.h>

#include "lockstep/base/error.h"
#include "lockstep/jobs/run_view.h"

namespace lockstep::service {
namespace {

constexpr std::chrono::milliseconds kViewAge{250};
constexpr std::size_t kMostViews = 1000;
// Some MB each: larger ones are read whenever they are asked for.
constexpr std::size_t kMostFiles = 16;
constexpr std::int64_t kLargestFile = 1 << 20;

std::string read_view(const files::Path& run) {
  try {
    return jobs::to_json(jobs::view_of(run::RunDirectory::open(run)));
  } catch (const Error&) {
    return "";  // not made yet
  }
}

}  // namespace

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
    const auto found = views_.find(run);
    if (found != views_.end() && found->second.record == record &&
        now - found->second.read < kViewAge) {
      return found->second.json;
    }
  }
  auto json = read_view(run);
  const std::lock_guard lock(mutex_);
  if (views_.size() >= kMostViews) views_.clear();
  views_[run] = {record, now, json};
  return json;
}

RunCache::Lines RunCache::metrics(const JobFolder& folder) {
  const auto file = folder.run() / "metrics.jsonl";
  // Before it is read: what comes in between is read the next time.
  const auto stamp = stamp_of(file);
  {
    const std::lock_guard lock(mutex_);
    const auto found = metrics_.find(file);
    if (found != metrics_.end() && found->second.stamp == stamp) {
      return found->second.lines;
    }
  }
  auto lines = std::make_shared<const std::vector<monitor::Metrics>>(
      monitor::read_metrics(file));
  if (stamp.bytes > kLargestFile) return lines;
  const std::lock_guard lock(mutex_);
  if (metrics_.size() >= kMostFiles) metrics_.clear();
  metrics_[file] = {stamp, lines};
  return lines;
}

}  // namespace lockstep::service
