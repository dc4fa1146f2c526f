#pragma once

#include "lockstep/storage/file_system.h"
#include "lockstep/storage/manifest.h"

namespace lockstep::storage {

struct BlockRange {
  std::int64_t begin, size;
};

struct BlockIndex {
  std::size_t file, block;
};

BlockRange block_range(const Manifest& manifest, const BlockIndex& index);

// Throws Fault::io: the bytes of a block are not those that were written. Names the
// tensors in it.
[[noreturn]] void throw_damaged(const Manifest& manifest, const BlockIndex& index,
                                const Path& path);

}  // namespace lockstep::storage
