#pragma once

#include <exception>

namespace lockstep::models {

// Returns whether there was no room for a tensor, on the host or on a GPU: by its type,
// or by its text where a layer between, TorchScript's interpreter for one, has made
// another exception of it.
bool is_out_of_memory(const std::exception& error) noexcept;

}  // namespace lockstep::models
