#pragma once

#include <memory>

#include "lockstep/comm/communicator.h"

namespace lockstep::comm {

// The debug mode: before every collective of `inner` the ranks compare their calls over
// `side`, a communicator of CPU tensors with the same ranks. If they differ, every rank
// gets an error (Fault::config) that names both calls and their call sites; a rank that
// does not come is named when `side` times out.
//
// Slow: a round trip for each collective, and the host waits for it.
std::unique_ptr<Communicator> make_checked(std::unique_ptr<Communicator> inner,
                                           std::unique_ptr<Communicator> side);

}  // namespace lockstep::comm
