// A build without CUDA links this file instead of cuda_graph.cpp.
#include "lockstep/base/error.h"
#include "lockstep/kernels/cuda_graph.h"

namespace lockstep::kernels {

class CudaGraph::Impl {};

bool CudaGraph::is_available() noexcept {
  return false;
}

CudaGraph::CudaGraph(const CudaGraph*) {}

CudaGraph::~CudaGraph() = default;

void CudaGraph::capture(const std::function<void()>&) {
  throw Error(Fault::internal, "kernels: this build has no CUDA graphs");
}

void CudaGraph::replay() {
  throw Error(Fault::internal, "kernels: this build has no CUDA graphs");
}

}  // namespace lockstep::kernels
