#pragma once

#include <string>

#include "lockstep/config/detail/knobs.h"

namespace lockstep::config::detail {

struct ReferenceColumns {
  bool affects = true;
};

// Returns a table for each section.
std::string sections_markdown(const Knobs& knobs, const ReferenceColumns& columns = {});

}  // namespace lockstep::config::detail
