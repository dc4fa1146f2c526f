// Who waits for what, and for how long.
#include <algorithm>
#include <array>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/jobs/run_view.h"
#include "lockstep/service/forecast.h"
#include "lockstep/service/job_files.h"
#include "lockstep/service/service.h"

namespace lockstep::service {
namespace {

Load load_of(const Job& job, std::optional<double> seconds) {
  const double share =
      job.resources.memory_fraction > 0 ? job.resources.memory_fraction : 1.0;
  Load load{.cores = job.resources.cores,
            .gpus = job.resources.gpus * share,
            .seconds = seconds};
  if (job.time_limit > 0) {
    const double limit = static_cast<double>(job.time_limit) / 1000;
    load.seconds = load.seconds ? std::min(*load.seconds, limit) : limit;
  }
  return load;
}

// From what it has done so far; nothing before its first steps.
std::optional<double> seconds_left(const JobFolder& folder) {
  try {
    const ReadableRun run(folder);
    const auto view = jobs::view_of(run::RunDirectory::open(run.path()));
    if (!view.step || *view.step == 0 || !view.total_steps || !view.duration_seconds) {
      return std::nullopt;
    }
    const auto left = static_cast<double>(*view.total_steps - *view.step);
    return std::max(0.0,
                    left * *view.duration_seconds / static_cast<double>(*view.step));
  } catch (const Error&) {
    return std::nullopt;
  }
}

bool waiting_for_room(const Turn& turn) {
  return text::starts_with(turn.reason, "waits for ") ||
         text::starts_with(turn.reason, "waits behind ");
}

}  // namespace

Service::Queue Service::queue() {
  constexpr std::chrono::seconds kAge{1};
  // Held while it is read: many who ask wait for one.
  const std::lock_guard lock(queue_mutex_);
  const auto version = store_.version();
  const auto now = Clock::system().now();
  if (!queue_ || !(queue_version_ == version) || now - queue_read_ >= kAge) {
    queue_ = std::make_shared<const std::vector<QueuePlace>>(queue_places());
    queue_version_ = version;
    queue_read_ = now;
  }
  return queue_;
}

std::vector<QueuePlace> Service::queue_places() {
  const auto view = dispatcher_.queue_view();
  std::vector<QueuePlace> places;
  std::vector<Load> waiting;
  const auto usual = usual_seconds();
  for (auto& turn : schedule(view, config().quota)) {
    waiting.push_back(load_of(view.queued[turn.index], usual));
    places.push_back(
        {.turn = std::move(turn), .position = static_cast<int>(places.size()) + 1});
  }
  const auto starts = forecast({.cores = static_cast<int>(view.pool.cores.size()),
                                .gpus = static_cast<double>(view.pool.gpus.size())},
                               running_loads(), waiting);
  for (std::size_t i = 0; i < places.size(); ++i) {
    // One that waits for another job, or for its quota, waits for more than room.
    if (places[i].turn.leases.empty() && waiting_for_room(places[i].turn)) {
      places[i].starts_in_seconds = starts[i];
    } else if (!places[i].turn.leases.empty()) {
      places[i].starts_in_seconds = 0;
    }
  }
  return places;
}

std::vector<Load> Service::running_loads() {
  std::vector<Load> loads;
  constexpr std::array kRunning{JobState::planning, JobState::running,
                                JobState::pausing, JobState::stopping};
  for (const auto& job : store_.jobs_in(kRunning)) {
    loads.push_back(load_of(job, seconds_left(dispatcher_.folder_of(job.id))));
  }
  return loads;
}

// The median of the jobs that were done last; nothing before the first.
std::optional<double> Service::usual_seconds() {
  constexpr int kLook = 50;
  std::vector<double> seconds;
  for (const auto& job : store_.jobs({.state = JobState::done, .limit = kLook})) {
    seconds.push_back(job.seconds);
  }
  if (seconds.empty()) return std::nullopt;
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

}  // namespace lockstep::service
