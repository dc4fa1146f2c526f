#pragma once

#include <string_view>

namespace lockstep {

// Returns the version of Lockstep: "0.1.0".
std::string_view version() noexcept;

}  // namespace lockstep
