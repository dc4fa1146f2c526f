#pragma once

#include <malloc.h>

namespace lockstep {

// A training step frees and allocates the same large blocks over and over. By default
// malloc gives each back to the kernel, and the next step faults in fresh zeroed pages:
// a good part of a step. Call it once, before the first large allocation.
inline void keep_freed_memory() {
  mallopt(M_MMAP_MAX, 0);  // large blocks from the heap too, so that they are reused
  mallopt(M_TRIM_THRESHOLD, -1);  // never give the top of the heap back
  mallopt(M_TOP_PAD, 64 << 20);   // and grow it rarely
}

// Gives back what is kept: for a change to blocks of other sizes, which find no room
// in the holes that the ones before have left.
inline void give_back_freed_memory() {
  malloc_trim(0);
}

}  // namespace lockstep
