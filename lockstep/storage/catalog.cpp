#include "lockstep/storage/catalog.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/storage/detail/names.h"
#include "lockstep/storage/publish.h"

namespace lockstep::storage {
namespace {

// Returns the manifest of a checkpoint that passes a quick check; empty if it does not.
std::optional<Manifest> good_manifest(const Path& checkpoint) {
  try {
    return verify(checkpoint, Depth::quick);
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::optional<Path> link_target(const Path& checkpoints, std::string_view name) {
  std::error_code error;
  const auto target = std::filesystem::read_symlink(checkpoints / name, error);
  if (error || !step_of(target.string()) || !is_there(checkpoints / target)) {
    return std::nullopt;
  }
  return checkpoints / target;
}

std::optional<Path> find_best(const Path& checkpoints) {
  std::optional<Path> best;
  std::optional<WatchedMetric> metric;
  for (const auto& entry : list_steps(checkpoints)) {
    const auto manifest = good_manifest(entry.path);
    if (!manifest || !manifest->metric) continue;
    if (metric && !manifest->metric->better_than(*metric)) continue;
    metric = manifest->metric;
    best = entry.path;
  }
  return best;
}

void replace_link(FileSystem& files, const Path& link, std::int64_t step) {
  const auto fresh = link.parent_path() / kNewLink;
  if (is_there(fresh)) files.remove(fresh);
  files.link(step_name(step), fresh);
  files.rename(fresh, link);
}

// Returns the best step, now that `step` has been saved. The manifests of all others
// are read only if the link says nothing, or if the best one was saved again.
std::optional<std::int64_t> best_with(const Path& checkpoints, std::int64_t step) {
  const auto place = step_directory(checkpoints, step);
  const auto linked = link_target(checkpoints, kBest);
  if (!linked || *linked == place) {
    const auto best = find_best(checkpoints);
    return best ? step_of(best->filename().string()) : std::nullopt;
  }
  const auto mine = good_manifest(place), other = good_manifest(*linked);
  if (!mine || !mine->metric) return std::nullopt;
  const bool better =
      !other || !other->metric || mine->metric->better_than(*other->metric);
  return better ? std::optional(step) : std::nullopt;
}

}  // namespace

std::vector<StepEntry> list_steps(const Path& checkpoints) {
  std::vector<StepEntry> entries;
  for (const auto& name : names_in(checkpoints)) {
    const auto hidden = hidden_of(name);
    if (const auto step = step_of(name)) {
      entries.push_back({*step, checkpoints / name});
    } else if (hidden && hidden->suffix == Suffix::replaced &&
               !is_there(step_directory(checkpoints, hidden->step))) {
      // A crash came while it was being replaced: it still is the checkpoint of its
      // step.
      entries.push_back({hidden->step, checkpoints / name});
    }
  }
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.step < b.step; });
  return entries;
}

NewestValid newest_valid(const Path& checkpoints, Depth depth) {
  NewestValid found;
  auto entries = list_steps(checkpoints);
  std::reverse(entries.begin(), entries.end());
  for (const auto& entry : entries) {
    try {
      auto manifest = verify(entry.path, depth);
      found.path = entry.path;
      found.manifest = std::move(manifest);
      return found;
    } catch (const Error& error) {
      found.skipped.push_back({entry.path, error.what(), error.fault()});
    }
  }
  return found;
}

std::optional<Path> named(const Path& checkpoints, std::string_view name) {
  if (const auto target = link_target(checkpoints, name)) return target;
  if (name == kBest) return find_best(checkpoints);
  if (name == kLast) return newest_valid(checkpoints, Depth::quick).path;
  return std::nullopt;
}

void repair_links(FileSystem& files, const Path& checkpoints) {
  bool changed = false;
  for (const auto name : {kLast, kBest}) {
    if (!is_there(checkpoints / name) || link_target(checkpoints, name)) continue;
    const auto other = named(checkpoints, name);
    const auto step = other ? step_of(other->filename().string()) : std::nullopt;
    if (step) {
      replace_link(files, checkpoints / name, *step);
    } else {
      files.remove(checkpoints / name);
    }
    changed = true;
  }
  if (changed) files.sync_directory(checkpoints);
}

void update_links(FileSystem& files, const Path& checkpoints, std::int64_t step) {
  replace_link(files, checkpoints / kLast, step);
  const auto best = best_with(checkpoints, step);
  if (best && link_target(checkpoints, kBest) != step_directory(checkpoints, *best)) {
    replace_link(files, checkpoints / kBest, *best);
  }
}

}  // namespace lockstep::storage
