#pragma once

#include <functional>
#include <memory>

namespace lockstep::train {

// A CUDA graph: launches that were captured, and are launched again as one. Graphs that
// share memory are never replayed at the same time, and nothing that one of them
// computed into memory of its own is read after another's replay.
//
// Stream: the current one, which must not be the default one.
class CudaGraph {
 public:
  // Whether this build has them.
  static bool is_available() noexcept;

  // `shares` with another one the memory of what is made while it captures.
  explicit CudaGraph(const CudaGraph* shares = nullptr);
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  // Holds what `launch` launches, which does not run now. Once. Passes on what it
  // throws; then graphs that share its memory are not replayed any more.
  void capture(const std::function<void()>& launch);
  void replay();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::train
