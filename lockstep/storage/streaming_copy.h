#pragma once

#include <cstddef>
#include <span>

#include "lockstep/storage/digest.h"

namespace lockstep::storage {

// Copies past the cache, for memory that only a disk will read: other threads keep
// their data in it. The bytes are hashed on the way, so that memory is read once.
// REQUIRES: `to` has room for `from`, and they do not overlap.
void copy_and_digest(std::byte* to, std::span<const std::byte> from,
                     BlockDigests& digests);

}  // namespace lockstep::storage
