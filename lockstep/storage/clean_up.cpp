#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/storage/catalog.h"
#include "lockstep/storage/detail/names.h"
#include "lockstep/storage/publish.h"

namespace lockstep::storage {
namespace {

constexpr std::string_view kStep = "step_";

std::string_view text_of(Suffix suffix) {
  switch (suffix) {
    case Suffix::partial:
      return ".partial";
    case Suffix::replaced:
      return ".replaced";
    default:
      return ".removed";
  }
}

bool is_good(const Path& checkpoint) {
  try {
    static_cast<void>(verify(checkpoint, Depth::quick));
    return true;
  } catch (const Error&) {
    return false;
  }
}

// The old checkpoint of a step stands aside. If the new one did not make it, it comes
// back. Returns a line about it, or none.
std::vector<std::string> settle_replaced(FileSystem& files, const Path& checkpoints,
                                         std::int64_t step) {
  const auto aside = checkpoints / hidden_name(step, Suffix::replaced);
  if (!is_there(aside)) return {};
  const auto place = step_directory(checkpoints, step);
  if (is_there(place) && (is_good(place) || !is_good(aside))) {
    remove_tree(files, aside);
    return {str("removed the replaced checkpoint of step ", step)};
  }
  if (is_there(place)) remove_checkpoint(files, checkpoints, step);
  files.rename(aside, place);
  files.sync_directory(checkpoints);
  return {str("put step ", step, " back, whose replacement had been interrupted")};
}

}  // namespace

std::string step_name(std::int64_t step) {
  return str(kStep, step);
}

std::string hidden_name(std::int64_t step, Suffix suffix) {
  return str(".", kStep, step, text_of(suffix));
}

std::optional<std::int64_t> step_of(std::string_view name) {
  if (!text::starts_with(name, kStep)) return std::nullopt;
  const auto digits = name.substr(kStep.size());
  if (digits.empty() ||
      digits.find_first_not_of("0123456789") != std::string_view::npos) {
    return std::nullopt;
  }
  const auto step = text::to_integer(digits);
  if (!step || str(*step) != digits) return std::nullopt;
  return *step;
}

std::optional<Hidden> hidden_of(std::string_view name) {
  if (name.empty() || name.front() != '.') return std::nullopt;
  const auto dot = name.rfind('.');
  const auto step = dot > 0 ? step_of(name.substr(1, dot - 1)) : std::nullopt;
  if (!step) return std::nullopt;
  for (const auto suffix : {Suffix::partial, Suffix::replaced, Suffix::removed}) {
    if (name.substr(dot) == text_of(suffix)) return Hidden{*step, suffix};
  }
  return std::nullopt;
}

bool is_there(const Path& path) {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::symlink_status(path, ignored));
}

void remove_checkpoint(FileSystem& files, const Path& checkpoints, std::int64_t step) {
  const auto place = step_directory(checkpoints, step);
  const auto aside = checkpoints / hidden_name(step, Suffix::removed);
  remove_tree(files, aside);
  files.rename(place, aside);
  // The rename is synced before the files go, or a power cut could leave the name with
  // half of them.
  files.sync_directory(checkpoints);
  remove_tree(files, aside);
}

std::vector<std::string> settle(FileSystem& files, const Path& checkpoints,
                                std::int64_t step) {
  auto lines = settle_replaced(files, checkpoints, step);
  for (const auto suffix : {Suffix::partial, Suffix::removed}) {
    const auto rest = checkpoints / hidden_name(step, suffix);
    if (!is_there(rest)) continue;
    remove_tree(files, rest);
    lines.push_back(str("removed what an interrupted ",
                        suffix == Suffix::partial ? "save" : "removal", " of step ",
                        step, " left"));
  }
  return lines;
}

std::optional<Path> set_aside(FileSystem& files, const Path& checkpoints,
                              std::int64_t after) {
  auto entries = list_steps(checkpoints);
  std::erase_if(entries, [&](const auto& entry) { return entry.step <= after; });
  if (entries.empty()) return std::nullopt;
  Path aside;
  for (int number = 1; aside.empty(); ++number) {
    const auto name = checkpoints / str("set_aside_", number);
    if (!is_there(name) && files.make_directory(name)) aside = name;
  }
  files.sync_directory(checkpoints);
  for (const auto& entry : entries) {
    files.rename(entry.path, aside / step_name(entry.step));
  }
  // The new names are synced before the old ones are gone for good.
  files.sync_directory(aside);
  files.sync_directory(checkpoints);
  repair_links(files, checkpoints);
  return aside;
}

std::vector<std::string> clean_up(FileSystem& files, const Path& checkpoints) {
  std::set<std::int64_t> steps;
  bool link_left = false;
  for (const auto& name : names_in(checkpoints)) {
    if (const auto hidden = hidden_of(name)) steps.insert(hidden->step);
    link_left |= name == kNewLink;
  }
  std::vector<std::string> lines;
  // A rename that was not synced must not be overtaken by the removals below.
  if (!steps.empty()) files.sync_directory(checkpoints);
  for (const auto step : steps) {
    for (auto& line : settle(files, checkpoints, step))
      lines.push_back(std::move(line));
  }
  if (link_left) files.remove(checkpoints / kNewLink);
  repair_links(files, checkpoints);
  return lines;
}

}  // namespace lockstep::storage
