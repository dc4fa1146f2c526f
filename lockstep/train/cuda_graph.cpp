#include "lockstep/train/cuda_graph.h"

#include <exception>

#include <ATen/cuda/CUDAGraph.h>

namespace lockstep::train {

class CudaGraph::Impl {
 public:
  explicit Impl(const Impl* shares)
      : pool_(shares == nullptr ? at::cuda::graph_pool_handle() : shares->pool_) {}

  void capture(const std::function<void()>& launch) {
    // Other threads, the saver's and c10d's, may ask the device for something
    // meanwhile.
    graph_.capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    std::exception_ptr failure;
    try {
      launch();
    } catch (...) {
      failure = std::current_exception();
    }
    try {
      graph_.capture_end();
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
    if (!failure) return;
    graph_.reset();
    static_cast<void>(cudaGetLastError());  // the next launch is no part of it
    std::rethrow_exception(failure);
  }

  void replay() { graph_.replay(); }

 private:
  at::cuda::MempoolId_t pool_;
  at::cuda::CUDAGraph graph_;
};

bool CudaGraph::is_available() noexcept {
  return true;
}

CudaGraph::CudaGraph(const CudaGraph* shares)
    : impl_(std::make_unique<Impl>(shares == nullptr ? nullptr : shares->impl_.get())) {
}

CudaGraph::~CudaGraph() = default;

void CudaGraph::capture(const std::function<void()>& launch) {
  impl_->capture(launch);
}

void CudaGraph::replay() {
  impl_->replay();
}

}  // namespace lockstep::train
