#include "lockstep/kernels/cuda_graph.h"

#include <exception>

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAFunctions.h>

namespace lockstep::kernels {

namespace {

at::CUDAGeneratorImpl& generator_of(c10::DeviceIndex device) {
  return *at::check_generator<at::CUDAGeneratorImpl>(
      at::cuda::detail::getDefaultCUDAGenerator(device));
}

template <typename Do>
void in_any_case(const Do& what) {
  try {
    what();
  } catch (const std::exception&) {  // it was not under way
  }
}

// LibTorch ends a capture by the driver's first, and if that fails leaves its
// allocators and its generator in the middle of it.
struct GeneratorState {
  std::uint64_t seed, offset;
};

void end_what_failed(c10::DeviceIndex device, const at::cuda::MempoolId_t& pool,
                     const GeneratorState& before) {
  namespace allocator = c10::cuda::CUDACachingAllocator;
  in_any_case([&] { allocator::endAllocateToPool(device, pool); });
  in_any_case([&] { allocator::releasePool(device, pool); });
  auto* host = at::getHostAllocator(at::kCUDA);
  in_any_case([&] { host->end_allocate_to_pool(pool); });
  in_any_case([&] { host->release_pool(pool); });
  generator_of(device).graphsafe_set_state(c10::make_intrusive<at::CUDAGeneratorImpl>(
      device, c10::make_intrusive<at::CUDAGeneratorState>(before.seed, before.offset)));
  static_cast<void>(cudaGetLastError());  // the next launch is no part of it
}

}  // namespace

class CudaGraph::Impl {
 public:
  explicit Impl(const Impl* shares)
      : pool_(shares == nullptr ? at::cuda::graph_pool_handle() : shares->pool_) {}

  void capture(const std::function<void()>& launch) {
    const auto device = c10::cuda::current_device();
    auto& generator = generator_of(device);
    const auto seed = generator.current_seed();
    const auto offset = generator.philox_offset_per_thread();
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
      end_what_failed(device, pool_, {seed, offset});
    }
    if (!failure) return;
    graph_.reset();
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

}  // namespace lockstep::kernels
