#pragma once

namespace lockstep::profile {

// The boundaries of the passes of a micro-batch.
enum class PassEvent { forward_begins, backward_begins, ends };

}  // namespace lockstep::profile
