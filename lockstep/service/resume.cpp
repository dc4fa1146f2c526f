// A job goes on, on what it had or on something else.
#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/config/load.h"
#include "lockstep/service/service.h"

namespace lockstep::service {
namespace {

using Overrides = std::vector<std::pair<std::string, std::string>>;

int devices_of(const Resources& resources) {
  return resources.gpus > 0 ? resources.gpus : resources.cores;
}

config::Config config_of(const Job& job, const Overrides& overrides) {
  std::vector<config::Override> words;
  for (const auto& [key, value] : overrides) words.push_back({key, value});
  try {
    return config::load_text("recipe", job.recipe, words).config;
  } catch (const Error& error) {
    throw Refusal(Refused::invalid, error.what());
  }
}

void set(Overrides& overrides, const std::string& key, const std::string& value) {
  std::erase_if(overrides, [&](const auto& entry) { return entry.first == key; });
  overrides.emplace_back(key, value);
}

// The global batch of a recipe that says it by the batch of a rank; 0: it does not.
std::int64_t global_batch(const config::Config& config) {
  const auto& batch = config.batch;
  const auto ranks = config.parallel.ranks.value();
  if (!batch.global.is_auto()) return batch.global.value();
  if (!batch.per_rank.is_auto()) return batch.per_rank.value() * ranks;
  if (batch.micro.is_auto() || batch.accumulation.is_auto()) return 0;
  return batch.micro.value() * batch.accumulation.value() * ranks;
}

// A recipe that has a rank for each of its devices has one for each of the new ones.
// The global batch is what the run means, so it stays.
Overrides with_ranks_for(const Job& job, const Resources& wanted) {
  auto overrides = job.overrides;
  const int before = devices_of(job.resources);
  const int after = devices_of(wanted);
  if (before == after) return overrides;
  const auto config = config_of(job, overrides);
  const auto& ranks = config.parallel.ranks;
  if (ranks.is_auto() || ranks.value() != before) {
    check_ranks(config, wanted);
    return overrides;
  }
  if (const auto global = global_batch(config); global > 0) {
    set(overrides, "batch.global", str(global));
    for (const auto* key : {"batch.per_rank", "batch.accumulation"}) {
      set(overrides, key, "auto");
    }
  }
  set(overrides, "parallel.ranks", str(after));
  config_of(job, overrides);  // refuses what makes no sense
  return overrides;
}

}  // namespace

Job Service::resume(const Identity& who, const std::string& id,
                    const std::optional<Resources>& resources) {
  store_.transaction([&] {
    const auto now = changeable(who, id);
    if (resources) {
      const auto problem = never_fits(pool(), *resources);
      if (!problem.empty()) throw Refusal(Refused::invalid, "resources: ", problem);
    }
    if (now.state == JobState::queued && resources && *resources != now.resources) {
      throw Refusal(Refused::conflict,
                    "the job is queued; pause it, then resume it on other resources");
    }
    if (now.state == JobState::queued) return;
    // One that is over counts again, as a new one would.
    if (is_over(now.state)) check_quota(now.user);
    if (is_active(now.state) ||
        !store_.move(id, {now.state, JobState::queued, "resumed by " + who.user})) {
      throw Refusal(Refused::conflict, "the job is ", name_of(now.state));
    }
    store_.set_retry(id, 0, 0);
    if (!resources) return;
    store_.set_overrides(id, with_ranks_for(now, *resources));
    store_.set_resources(id, *resources);
  });
  dispatcher_.wake();
  return job(who, id);
}

}  // namespace lockstep::service
