#pragma once

#include <string>
#include <string_view>

#include "lockstep/storage/catalog.h"
#include "lockstep/storage/file_system.h"
#include "lockstep/storage/manifest.h"

namespace lockstep::storage {

inline constexpr std::string_view kMarkName = ".verified";

// The files of a checkpoint at one moment: names, sizes, inodes, times, and the digests
// that they should have. "" if one is missing.
struct Fingerprint {
  std::string text;
  // True if a change from now on gives other times: the clock of the files has moved on
  // since the last one.
  bool is_settled = false;
};
Fingerprint fingerprint(const Path& checkpoint, const Manifest& manifest);

struct NewMark {
  Mark mark;
  Fingerprint before;  // from before the bytes were looked at
};

// Writes the mark, unless the fingerprint is not settled. Not synced: a mark that is
// lost costs a reading. Throws Fault::io.
void write_mark(FileSystem& files, const Path& checkpoint, const NewMark& mark);

}  // namespace lockstep::storage
