// The replacement of nccl.cpp in a build without CUDA.
#include "lockstep/base/error.h"
#include "lockstep/comm/nccl.h"

namespace lockstep::comm {

std::string nccl_obstacle(const torch::Device&) {
  return "this program was built without NCCL";
}

std::unique_ptr<Communicator> make_nccl(const GroupOptions&) {
  throw Error(Fault::hardware,
              "comm: this program was built without NCCL; set "
              "comm.backend=gloo, or build it with LOCKSTEP_CUDA=on");
}

}  // namespace lockstep::comm
