#include <algorithm>
#include <map>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/system_error.h"
#include "lockstep/storage/catalog.h"
#include "lockstep/storage/detail/names.h"
#include "lockstep/storage/publish.h"

namespace lockstep::storage {
namespace {

void keep_newest(const std::vector<PruneCandidate>& good, std::int64_t number,
                 std::set<std::int64_t>& kept) {
  for (auto i = good.size(); i-- > 0 && number-- > 0;) kept.insert(good[i].step);
}

void keep_best(const std::vector<PruneCandidate>& good, std::int64_t number,
               std::set<std::int64_t>& kept) {
  std::vector<std::pair<WatchedMetric, std::int64_t>> ranked;
  for (const auto& candidate : good) {
    if (candidate.metric) ranked.emplace_back(*candidate.metric, candidate.step);
  }
  // Among equals the older one wins: it is where `best` points.
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) {
    return a.first.better_than(b.first);
  });
  for (const auto& [metric, step] : ranked) {
    if (number-- <= 0) return;
    kept.insert(step);
  }
}

// The checkpoints of a directory, of which each is looked at as closely as the rules
// make it necessary.
class Inventory {
 public:
  Inventory(const Path& checkpoints, Mark trust) : trust_(trust) {
    for (auto& entry : list_steps(checkpoints)) {
      try {
        auto manifest = verify(entry.path, Depth::quick);
        candidates_.push_back(
            {.step = entry.step, .good = true, .metric = manifest.metric});
        unread_.emplace(entry.step, Unread{entry.path, std::move(manifest)});
      } catch (const Error& error) {
        if (note(entry.path, error) == Finding::unknown) continue;
        candidates_.push_back(
            {.step = entry.step, .good = false, .metric = std::nullopt});
      }
    }
  }

  // Returns the steps to remove, when all that stay by a rule are known to be good.
  std::vector<std::int64_t> steps_to_remove(const Keep& keep) {
    while (true) {
      const auto gone = storage::steps_to_remove(candidates_, keep);
      bool as_expected = true;
      std::vector<PruneCandidate> known;
      for (auto candidate : candidates_) {
        const bool stays =
            std::find(gone.begin(), gone.end(), candidate.step) == gone.end();
        const auto found =
            stays && candidate.good ? look(candidate.step) : Finding::as_said;
        as_expected &= found == Finding::as_said;
        candidate.good &= found != Finding::damaged;
        if (found != Finding::unknown) known.push_back(candidate);
      }
      candidates_ = std::move(known);
      if (as_expected) return gone;
    }
  }

  std::vector<Skipped> damaged;
  std::vector<Skipped> unreadable;

 private:
  struct Unread {
    Path path;
    Manifest manifest;
  };
  // unknown: not ours to judge, so no rule is asked about it.
  enum class Finding { as_said, damaged, unknown };

  Finding note(const Path& path, const Error& error) {
    const bool later = files::may_be_readable_later(error);
    (later ? unreadable : damaged).push_back({path, error.what(), error.fault()});
    // Nothing is wrong with one of a newer format, either.
    return later || error.fault() == Fault::config ? Finding::unknown
                                                   : Finding::damaged;
  }

  Finding look(std::int64_t step) {
    const auto found = unread_.find(step);
    if (found == unread_.end()) return Finding::as_said;  // was found good before
    const auto unread = std::move(found->second);
    unread_.erase(found);
    try {
      if (read_mark(unread.path, unread.manifest) < trust_) {
        static_cast<void>(verify(unread.path, Depth::full));
      }
      return Finding::as_said;
    } catch (const Error& error) {
      return note(unread.path, error);
    }
  }

  const Mark trust_;
  std::vector<PruneCandidate> candidates_;
  std::map<std::int64_t, Unread> unread_;
};

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

std::vector<std::int64_t> steps_to_remove(std::vector<PruneCandidate> candidates,
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

Pruned prune(FileSystem& files, const Path& checkpoints, const PruneOptions& options) {
  Inventory inventory(checkpoints, options.trust);
  const auto gone = inventory.steps_to_remove(options.keep);
  const auto is_gone = [&](std::int64_t step) {
    return std::find(gone.begin(), gone.end(), step) != gone.end();
  };
  Pruned pruned{.damaged = std::move(inventory.damaged),
                .unreadable = std::move(inventory.unreadable)};
  for (const auto& entry : list_steps(checkpoints)) {
    auto& list = is_gone(entry.step) ? pruned.removed : pruned.kept;
    list.push_back(entry.path);
    if (is_gone(entry.step)) pruned.freed_bytes += bytes_in(entry.path);
  }
  if (options.dry_run) return pruned;
  for (const auto step : gone) {
    if (is_there(step_directory(checkpoints, step))) {
      remove_checkpoint(files, checkpoints, step);
    }
  }
  repair_links(files, checkpoints);
  return pruned;
}

}  // namespace lockstep::storage
