#pragma once

#include "lockstep/storage/file_system.h"
#include "lockstep/storage/manifest.h"

namespace lockstep::storage {

struct BlockRange {
  std::int64_t begin, size;
};

BlockRange block_range(const Manifest& manifest, std::size_t file, std::size_t block);

// Throws Fault::io: the bytes of a block are not those that were written. Names the
// tensors in it.
[[noreturn]] void throw_damaged(const Manifest& manifest, std::size_t file,
                                std::size_t block, const Path& path);

}  // namespace lockstep::storage
