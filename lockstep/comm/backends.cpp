#include "lockstep/comm/detail/backends.h"

#include "lockstep/comm/nccl.h"

namespace lockstep::comm::detail {

using config::CommBackend;

// Each is in the source of its backend; but for this one, of which builds without CUDA
// have no source.
#define LOCKSTEP_DECLARE(name) Backend name##_backend();
LOCKSTEP_BACKENDS(LOCKSTEP_DECLARE)
#undef LOCKSTEP_DECLARE

Backend nccl_backend() {
  return {.name = CommBackend::nccl,
          .or_gloo = CommBackend::nccl_or_gloo,
          .on_host = false,
          .available =
              [](const BackendSite& site) { return nccl_obstacle(site.group.device); },
          .make = [](const BackendSite& site) { return make_nccl(site.group); }};
}

const std::vector<Backend>& backends() {
#define LOCKSTEP_ROW(name) name##_backend(),
  static const std::vector<Backend> table{LOCKSTEP_BACKENDS(LOCKSTEP_ROW)};
#undef LOCKSTEP_ROW
  return table;
}

bool is_wanted(const Backend& backend, CommBackend wanted, bool tensors_on_host) {
  // Over gloo tensors travel wherever nothing else does.
  if (backend.name == CommBackend::gloo) return true;
  const bool by_default =
      wanted == CommBackend::automatic && backend.on_host == tensors_on_host;
  return by_default || wanted == backend.name || wanted == backend.or_gloo;
}

}  // namespace lockstep::comm::detail
