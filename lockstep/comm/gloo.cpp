// The only source that sees gloo's headers. Nothing here may touch a gloo::Context: its
// layout differs between the headers and the code inside LibTorch.
#include "lockstep/comm/gloo.h"

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "lockstep/base/error.h"

namespace lockstep::comm {

c10::intrusive_ptr<c10d::Backend> make_gloo(const GlooOptions& options) {
  try {
    auto gloo = c10d::ProcessGroupGloo::Options::create(options.timeout);
    gloo->devices.push_back(
        c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
    return c10::make_intrusive<c10d::ProcessGroupGloo>(options.store, options.rank,
                                                       options.size, gloo);
  } catch (const c10::Error& error) {
    throw Error(Fault::comm, "comm: rank ", options.rank, " of ", options.size,
                " could not join over gloo: ", error.what_without_backtrace());
  }
}

}  // namespace lockstep::comm
