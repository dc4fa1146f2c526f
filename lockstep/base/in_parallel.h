#pragma once

#include <cstddef>
#include <functional>

namespace lockstep {

// Runs body(0), ..., body(count - 1) on at most `threads` threads, the caller's
// included. If bodies throw, no new ones are begun, and the exception of the lowest
// number is thrown when all threads have ended.
void in_parallel(std::size_t count, std::size_t threads,
                 const std::function<void(std::size_t)>& body);

}  // namespace lockstep
