#include "lockstep/base/error.h"
#include "lockstep/comm/detail/modelled_line.h"

namespace lockstep::comm::detail {

std::unique_ptr<Line> make_stream_line(const torch::Device& device, Occupy) {
  throw Error(Fault::hardware, "comm: a modelled network on ", device.str(),
              " needs a build with CUDA; set parallel.device=cpu");
}

}  // namespace lockstep::comm::detail
