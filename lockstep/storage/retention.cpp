#include <algorithm>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/storage/catalog.h"
#include "lockstep/storage/detail/names.h"
#include "lockstep/storage/publish.h"

namespace lockstep::storage {
namespace {

void keep_newest(const std::vector<Candidate>& good, std::int64_t number,
                 std::set<std::int64_t>& kept) {
  for (auto i = good.size(); i-- > 0 && number-- > 0;) kept.insert(good[i].step);
}

void keep_best(const std::vector<Candidate>& good, std::int64_t number,
               std::set<std::int64_t>& kept) {
  std::vector<std::pair<Metric, std::int64_t>> ranked;
  for (const auto& candidate : good) {
    if (candidate.metric) ranked.emplace_back(*candidate.metric, candidate.step);
  }
  // Of equals the older one: it is where `best` points.
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) {
    return a.first.better_than(b.first);
  });
  for (const auto& [metric, step] : ranked) {
    if (number-- <= 0) return;
    kept.insert(step);
  }
}

std::vector<Candidate> candidates_in(const Path& checkpoints) {
  std::vector<Candidate> candidates;
  for (const auto& entry : list_steps(checkpoints)) {
    Candidate candidate{.step = entry.step, .good = true, .metric = {}};
    try {
      candidate.metric = verify(entry.path, Depth::quick).metric;
    } catch (const Error&) {
      candidate.good = false;
    }
    candidates.push_back(std::move(candidate));
  }
  return candidates;
}

std::int64_t bytes_in(const Path& checkpoint) {
  std::int64_t sum = 0;
  for (const auto& name : names_in(checkpoint)) {
    std::error_code error;
    const auto size = std::filesystem::file_size(checkpoint / name, error);
    if (!error) sum += static_cast<std::int64_t>(size);
  }
  return sum;
}

}  // namespace

std::vector<std::int64_t> steps_to_remove(std::vector<Candidate> candidates,
                                          const Keep& keep) {
  std::sort(candidates.begin(), candidates.end(),
            [](const auto& a, const auto& b) { return a.step < b.step; });
  auto good = candidates;
  std::erase_if(good, [](const auto& candidate) { return !candidate.good; });
  if (good.empty()) return {};
  std::set<std::int64_t> kept;
  keep_newest(good, std::max<std::int64_t>(1, keep.last), kept);
  keep_best(good, keep.best, kept);
  if (keep.always) kept.insert(*keep.always);
  std::vector<std::int64_t> gone;
  for (const auto& candidate : candidates) {
    const bool milestone =
        candidate.good && keep.every > 0 && candidate.step % keep.every == 0;
    if (!milestone && kept.count(candidate.step) == 0) gone.push_back(candidate.step);
  }
  return gone;
}

Pruned prune(FileSystem& files, const Path& checkpoints, const Keep& keep,
             bool dry_run) {
  const auto gone = steps_to_remove(candidates_in(checkpoints), keep);
  const auto is_gone = [&](std::int64_t step) {
    return std::find(gone.begin(), gone.end(), step) != gone.end();
  };
  Pruned pruned;
  for (const auto& entry : list_steps(checkpoints)) {
    auto& list = is_gone(entry.step) ? pruned.removed : pruned.kept;
    list.push_back(entry.path);
    if (is_gone(entry.step)) pruned.freed_bytes += bytes_in(entry.path);
  }
  if (dry_run) return pruned;
  for (const auto step : gone) {
    if (is_there(step_directory(checkpoints, step))) {
      remove_checkpoint(files, checkpoints, step);
    }
  }
  repair_links(files, checkpoints);
  return pruned;
}

}  // namespace lockstep::storage
