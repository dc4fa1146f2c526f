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

// A word names a run (id or path), a directory of checkpoints, or one of them.
struct CheckpointPlace {
  std::filesystem::path checkpoints;            // "" where only one was named
  std::optional<std::filesystem::path> single;  // that one
};

// Returns the place of `word`, or the newest run. Throws Fault::config if none.
CheckpointPlace checkpoint_place(const Arguments& arguments, const Context& context,
                                 const std::optional<std::string>& word);

struct CheckpointChoice {
  std::optional<std::string> step;  // --step N|best|last
  storage::Depth depth = storage::Depth::quick;
};

// Returns one checkpoint of it: the named one, that of the step, or the newest that is
// good at this depth; context.err names those that were skipped.
std::filesystem::path one_checkpoint(const CheckpointPlace& place,
                                     const CheckpointChoice& choice, Context& context);
int list_checkpoints(const Arguments& arguments, Context& context);
int inspect_checkpoint(const Arguments& arguments, Context& context);
int verify_checkpoints(const Arguments& arguments, Context& context);
int diff_checkpoints(const Arguments& arguments, Context& context);
int export_checkpoint(const Arguments& arguments, Context& context);
int import_weights(const Arguments& arguments, Context& context);
int prune_checkpoints(const Arguments& arguments, Context& context);

// The difference of two versions of a tensor.
struct TensorDifference {
  std::int64_t elements = 0;  // that differ
  double absolute = 0;        // the largest |a - b|
  double relative = 0;        // that over the largest |a|
};

// Reads both piece by piece. They have the same dtype and shape.
TensorDifference tensor_difference(const storage::Reader& a, const storage::Reader& b,
                                   const std::string& name);

// Returns how many elements are handled at once: some megabytes, or all of a tensor
// whose order has to be changed.
std::int64_t chunk_elements(const storage::TensorRecord& tensor, bool reorders);

}  // namespace lockstep::cli
