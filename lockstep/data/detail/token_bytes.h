#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/tokenizer/tokenizer.h"

namespace lockstep::data::detail {

// Returns the number of bytes that each token stands for; special tokens stand for
// none.
std::vector<std::int64_t> token_bytes(const tokenizer::Tokenizer& words);

}  // namespace lockstep::data::detail
