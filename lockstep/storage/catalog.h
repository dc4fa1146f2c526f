#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/storage/file_system.h"
#include "lockstep/storage/manifest.h"

// The checkpoints of a directory.
namespace lockstep::storage {

struct StepEntry {
  std::int64_t step = 0;
  Path path;
};

// Returns the steps, oldest first, without verifying them. None if the directory does
// not exist.
std::vector<StepEntry> list_steps(const Path& checkpoints);

enum class Depth {
  quick,   // the manifest, and that every file is there with its size
  marked,  // full, unless it has a mark that says `read`
  full     // every byte, and that the files say the same as the manifest
};

// Returns the manifest of a good checkpoint, which is of the step that its directory is
// named after. Fault::io names the file, and the tensor where there is one, and what is
// wrong with it; Fault::config: a newer format. One that passes in full gets a mark, if
// its directory can be written to.
Manifest verify(const Path& checkpoint, Depth depth);

// The state of verification of a checkpoint, from a file of its directory that any
// change of its files (size, times, another file of the same name) makes void.
enum class Mark {
  none,
  written,  // they were written and synced with the digests of the manifest
  read      // they were read, and have the digests of the manifest
};
Mark read_mark(const Path& checkpoint, const Manifest& manifest);

struct Skipped {
  Path path;
  std::string reason;
  Fault fault = Fault::io;  // Fault::config: a newer format, nothing is wrong with it
};

struct NewestValid {
  std::optional<Path> path;
  Manifest manifest;             // of `path`
  std::vector<Skipped> skipped;  // newer ones that are not good
};

// Returns the good one with the highest step.
NewestValid newest_valid(const Path& checkpoints, Depth depth);

// Names that are links to steps. publish() and prune() maintain them; a name whose link
// is missing or leads nowhere is found from the manifests.
inline constexpr std::string_view kLast = "last";
inline constexpr std::string_view kBest = "best";
std::optional<Path> named(const Path& checkpoints, std::string_view name);

// The rules of retention. A checkpoint stays if one rule keeps it.
struct Keep {
  std::int64_t last = 3;                    // the newest; at least 1
  std::int64_t best = 0;                    // by metric
  std::int64_t every = 0;                   // those whose step is a multiple; 0: none
  std::optional<std::int64_t> always = {};  // the one that was just saved
};

struct PruneCandidate {
  std::int64_t step = 0;
  bool good = true;
  std::optional<WatchedMetric> metric;
};

// Returns the steps to remove, oldest first. One that is not good counts for no rule
// and stays only if there is no good one; the newest good one always stays.
std::vector<std::int64_t> steps_to_remove(std::vector<PruneCandidate> candidates,
                                          const Keep& keep);

struct Pruned {
  std::vector<Path> removed;
  std::vector<Path> kept;
  std::vector<Skipped> damaged;     // those that counted for no rule, and why
  std::vector<Skipped> unreadable;  // nor did these, which stay: their state is unknown
  std::int64_t freed_bytes = 0;
};

struct PruneOptions {
  Keep keep;
  bool dry_run = false;     // only say what would go
  Mark trust = Mark::read;  // such a mark is as good as reading
};

// Applies the rules. A checkpoint that a rule keeps is verified, by its mark or in
// full, before anything goes; one that is not good counts for no rule. One of a newer
// format, or that could not be read (the disk, a server, permissions), counts for none,
// either, and stays. A link to a checkpoint that goes is pointed at the next best, or
// removed.
Pruned prune(FileSystem& files, const Path& checkpoints, const PruneOptions& options);

// For the start of a run, when no process writes here: removes the leftovers of an
// interrupted save or removal, and puts a checkpoint back whose replacement was
// interrupted. Returns a line for each action.
std::vector<std::string> clean_up(FileSystem& files, const Path& checkpoints);

// For a run that goes on after step `after` (-1: from its beginning): the checkpoints
// of later steps here are of an abandoned past, or damaged. They are moved to
// set_aside_<n>/, where no rule and no resume looks, and nothing is lost. Returns that
// directory; empty if there was nothing to move.
std::optional<Path> set_aside(FileSystem& files, const Path& checkpoints,
                              std::int64_t after);

// Points `last` at `step`, and `best` at the best by metric. The caller syncs.
void update_links(FileSystem& files, const Path& checkpoints, std::int64_t step);

}  // namespace lockstep::storage
