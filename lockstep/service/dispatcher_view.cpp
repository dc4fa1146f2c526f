// What the dispatcher knows of the machine and of the queue when it decides.
#include <algorithm>
#include <array>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/service/dispatcher.h"

namespace lockstep::service {
namespace {

constexpr std::chrono::seconds kLookAtMachineEvery{5};

}  // namespace

Milliseconds retry_delay(const config::QueueConfig& queue, int retries) {
  constexpr int kMostDoublings = 5;
  return queue.retry_delay.count() << std::min(retries, kMostDoublings);
}

hardware::Machine Dispatcher::machine() {
  const std::lock_guard lock(machine_mutex_);
  const auto now = Clock::system().now();
  if (looked_at_machine_ == SteadyTime{} ||
      now - looked_at_machine_ > kLookAtMachineEvery) {
    known_machine_ = machine_();
    looked_at_machine_ = now;
  }
  return known_machine_;
}

// Only where somebody computes on a GPU is it worth asking.
std::vector<int> Dispatcher::supervisors(const hardware::Machine& machine) {
  std::vector<int> found;
  const bool is_used =
      std::any_of(machine.gpus.begin(), machine.gpus.end(),
                  [](const auto& gpu) { return !gpu.processes.empty(); });
  if (!is_used || !executor_.uses_pool()) return found;
  for (const auto& job : store_.jobs_in(kActiveStates)) {
    try {
      const auto view = executor_.look(folder_of(job.id), job.attempt);
      if (view.supervisor) found.push_back(view.supervisor->pid);
    } catch (const Error&) {  // follow() says so
    }
  }
  return found;
}

Pool Dispatcher::pool() {
  // One lock at a time: whoever asks may hold the store's.
  auto known = machine();
  const auto leases = store_.leases();
  auto mine = supervisors(known);
  auto pool = pool_of({.machine = std::move(known),
                       .queue = config().queue,
                       .leases = leases,
                       .cores = cores_,
                       .supervisors = std::move(mine)});
  pool.elsewhere = !executor_.uses_pool();
  return pool;
}

QueueView Dispatcher::queue_view() {
  QueueView view;
  view.pool = pool();
  view.queued = store_.jobs_in(std::array{JobState::queued});
  view.leases = store_.leases();
  view.use = store_.use();
  view.now = store_.now();
  // Longer than any wait: the time of day was set back since.
  const auto longest = retry_delay(config().queue, std::numeric_limits<int>::max());
  for (auto& job : view.queued) {
    if (job.not_before - view.now > longest) job.not_before = 0;
  }
  view.state_of = [this](const std::string& id) -> std::optional<JobState> {
    const auto job = store_.find_job(id);
    if (!job) return std::nullopt;
    return job->state;
  };
  return view;
}

}  // namespace lockstep::service
