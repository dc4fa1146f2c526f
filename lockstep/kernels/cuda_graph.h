#pragma once

#include <functional>
#include <memory>

namespace lockstep::kernels {

// A CUDA graph: launches that were captured, and are launched again as one. Graphs that
// share memory are never replayed at the same time, and nothing that one of them
// computed into memory of its own is read after another's replay.
//
// Stream: the current one, which must not be the default one.
class CudaGraph {
 public:
  // Returns whether this build has CUDA graphs.
  static bool is_available() noexcept;

  // Shares the memory of tensors that are made during capture with the graph `shares`.
  explicit CudaGraph(const CudaGraph* shares = nullptr);
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  // Captures what `launch` launches, which does not run now. Call it once. Rethrows
  // what it throws; then graphs that share its memory are not replayed any more.
  void capture(const std::function<void()>& launch);
  void replay();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::kernels
