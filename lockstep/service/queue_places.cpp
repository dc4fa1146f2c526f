// Who waits for what, and for how long.
#include <algorithm>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

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

// What its plan has predicted for all of it; nothing where no plan was made, or one
// that predicts no time.
std::optional<double> predicted_seconds(const JobFile& plan) {
  constexpr std::int64_t kLargestPlan = 16 << 20;
  if (!plan) return std::nullopt;
  try {
    const auto json = nlohmann::json::parse(files::read(plan.path(), kLargestPlan));
    const auto& seconds = json.at("prediction").at("seconds");
    if (!seconds.is_number()) return std::nullopt;
    return std::max(0.0, seconds.get<double>());
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// From what it has done so far; before its first steps what its plan says.
std::optional<double> seconds_left(const JobFolder& folder) {
  try {
    const ReadableRun run(folder);
    const auto view = jobs::view_of(run::RunDirectory::open(run.path()));
    if (!view.step || *view.step == 0 || !view.total_steps || !view.duration_seconds) {
      return predicted_seconds(JobFile(folder, "run/plan.json"));
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
  const auto expected = expected_seconds(view.queued);
  for (auto& turn : schedule(view, config().quota)) {
    const auto& job = view.queued[turn.index];
    waiting.push_back(load_of(job, expected(job)));
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
  for (const auto& job : store_.jobs_in(kActiveStates)) {
    loads.push_back(load_of(job, seconds_left(dispatcher_.folder_of(job.id))));
  }
  return loads;
}

// What is known of a job that waits: what is left of it, if it has trained before; how
// long the same recipe took, or what a plan of it has predicted; else the median of the
// trainings that were done last, and nothing before the first.
std::function<std::optional<double>(const Job&)> Service::expected_seconds(
    const std::vector<Job>& waiting) {
  constexpr int kLook = 50;
  std::set<std::string_view> wanted;
  for (const auto& job : waiting) wanted.insert(job.recipe_key);
  std::map<std::string, double> of_recipe;
  std::vector<double> seconds;
  for (const auto& job : store_.jobs(
           {.state = JobState::done, .kind = JobKind::training, .limit = kLook})) {
    seconds.push_back(job.seconds);
    if (wanted.contains(job.recipe_key)) {
      of_recipe.emplace(job.recipe_key, job.seconds);
    }
  }
  for (const auto& job :
       store_.jobs({.state = JobState::done, .kind = JobKind::plan, .limit = kLook})) {
    if (!wanted.contains(job.recipe_key) || of_recipe.contains(job.recipe_key)) {
      continue;
    }
    const auto predicted =
        predicted_seconds(JobFile(dispatcher_.folder_of(job.id), "plan.json"));
    if (predicted) of_recipe.emplace(job.recipe_key, *predicted);
  }
  std::optional<double> usual;
  if (!seconds.empty()) {
    const auto middle =
        seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
    std::nth_element(seconds.begin(), middle, seconds.end());
    usual = *middle;
  }
  return [this, usual,
          of_recipe = std::move(of_recipe)](const Job& job) -> std::optional<double> {
    if (job.attempt > 0) {
      if (const auto left = seconds_left(dispatcher_.folder_of(job.id))) return left;
    }
    const auto known = of_recipe.find(job.recipe_key);
    return known == of_recipe.end() ? usual : std::optional(known->second);
  };
}

}  // namespace lockstep::service
