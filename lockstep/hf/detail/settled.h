#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/config/config.h"
#include "lockstep/hf/gpt2.h"

namespace lockstep::hf::detail {

// A size that both the recipe and config.json can say.
struct Size {
  const char* key;         // of the recipe
  std::int64_t& knob;      // there
  const char* field;       // of config.json
  std::int64_t value = 0;  // of that field
};

std::vector<Size> compared_sizes(config::Config& config, const Gpt2& model);

bool is_folder(const std::string& path);

// Throws Fault::config for rows that fill up a vocabulary whose size is not said.
void check_padding(const config::Config& config);

}  // namespace lockstep::hf::detail
