#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/storage/file_system.h"

// Names in the directory of checkpoints. A name that begins with a dot is on its way in
// or out: no reader looks at it, and clean_up() knows what to do with it.
namespace lockstep::storage {

enum class Suffix { partial, replaced, removed };

std::string step_name(std::int64_t step);
std::string hidden_name(std::int64_t step, Suffix suffix);

// Returns the step of "step_120"; empty for other names, "step_007" included.
std::optional<std::int64_t> step_of(std::string_view name);

struct Hidden {
  std::int64_t step;
  Suffix suffix;
};
std::optional<Hidden> hidden_of(std::string_view name);

// A link before it gets its name.
inline constexpr std::string_view kNewLink = ".link.new";

// Returns whether that name exists, a link that leads nowhere included.
bool is_there(const Path& path);

// Takes a checkpoint out of sight in one step, then removes it.
void remove_checkpoint(FileSystem& files, const Path& checkpoints, std::int64_t step);

// Makes sure that no link leads to a checkpoint that is not there.
void repair_links(FileSystem& files, const Path& checkpoints);

// Completes the operation that a crash interrupted at this step. Returns lines that say
// what was done.
std::vector<std::string> settle(FileSystem& files, const Path& checkpoints,
                                std::int64_t step);

}  // namespace lockstep::storage
