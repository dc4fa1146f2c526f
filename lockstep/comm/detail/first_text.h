#pragma once

#include <optional>
#include <string>
#include <utility>

#include "lockstep/comm/communicator.h"

namespace lockstep::comm::detail {

// Every rank gives a text (cut to 255 bytes); all get the first that is not empty, with
// its rank. None if all are empty. Collective; `cpu` moves CPU tensors.
std::optional<std::pair<int, std::string>> first_text(Communicator& cpu,
                                                      const std::string& own);

}  // namespace lockstep::comm::detail
