#pragma once

#include <optional>
#include <string>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files.h"

namespace lockstep::run {

// The reason why a rank failed, for its launcher. The file has torchrun's form, so that
// a reader of torchrun's files can read ours, and the other way round.
struct RankError {
  Fault fault = Fault::internal;
  std::string message;
  int rank = 0;
  double time = 0;  // seconds since 1970; set by write_error()
};

void write_error(const files::Path& path, const RankError& error,
                 const Clock& clock = Clock::system());

// Reads ours, or one that PyTorch wrote for torchrun, whose fault reads as internal and
// whose rank as 0. Nothing if the file is missing or not readable as one.
std::optional<RankError> read_error(const files::Path& path);

}  // namespace lockstep::run
