#pragma once

#include <exception>
#include <string>

namespace lockstep {

// What a library threw, without the stack frames that LibTorch appends: these are for
// who wrote the program, not for who runs it.
std::string without_frames(const std::exception& error);

}  // namespace lockstep
