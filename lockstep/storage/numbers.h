#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace lockstep::storage {

// Converts the elements to numbers; returns false for an unknown dtype.
bool to_numbers(const std::string& dtype, std::span<const std::byte> bytes,
                std::vector<double>& numbers);

}  // namespace lockstep::storage
