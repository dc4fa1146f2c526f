#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/cli/command.h"
#include "lockstep/storage/catalog.h"
#include "lockstep/storage/reader.h"

// `lockstep checkpoint`: one function an action.
namespace lockstep::cli {

// What a word names: a run (id or path), a directory of checkpoints, or one of them.
struct CheckpointPlace {
  std::filesystem::path checkpoints;            // "" where only one was named
  std::optional<std::filesystem::path> single;  // that one
};

// Without a word the newest run. Fault::config where there is nothing of the kind.
CheckpointPlace checkpoint_place(const Arguments& arguments, const Context& context,
                                 const std::optional<std::string>& word);

// One checkpoint of it: the named one, --step N|best|last, or the newest that is good
// when it is looked at so closely; those that were skipped are said on context.err.
std::filesystem::path one_checkpoint(const CheckpointPlace& place,
                                     const Arguments& arguments, Context& context,
                                     storage::Depth depth = storage::Depth::quick);

// Throws Fault::io: none of `damaged`, which is all there is in `checkpoints`, is good;
// each with its reason, and what can be done. `what` begins the message.
[[noreturn]] void refuse_damaged(std::string_view what,
                                 const std::filesystem::path& checkpoints,
                                 const std::vector<storage::Skipped>& damaged);

int list_checkpoints(const Arguments& arguments, Context& context);
int inspect_checkpoint(const Arguments& arguments, Context& context);
int verify_checkpoints(const Arguments& arguments, Context& context);
int diff_checkpoints(const Arguments& arguments, Context& context);
int export_checkpoint(const Arguments& arguments, Context& context);
int import_weights(const Arguments& arguments, Context& context);
int prune_checkpoints(const Arguments& arguments, Context& context);

// How two versions of a tensor differ.
struct TensorDifference {
  std::int64_t elements = 0;  // that differ
  double absolute = 0;        // the largest |a - b|
  double relative = 0;        // that over the largest |a|
};

// Reads both piece by piece. Same dtype and shape.
TensorDifference tensor_difference(const storage::Reader& a, const storage::Reader& b,
                                   const std::string& name);

// The elements as numbers; false for a dtype that has none here.
bool to_numbers(const std::string& dtype, std::span<const std::byte> bytes,
                std::vector<double>& numbers);

// How many elements are handled at once: some megabytes, or all of a tensor whose order
// has to be changed.
std::int64_t chunk_elements(const storage::TensorRecord& tensor, bool reorders);

}  // namespace lockstep::cli
