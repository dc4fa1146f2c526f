#pragma once

#include <cstdint>

#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

namespace lockstep::kernels {

// Splits a loop over the threads that LibTorch's own operators use. at::parallel_for
// does so only in sources built with OpenMP; the loop of an iterator is built into
// LibTorch.
//
// Threads: one loop at a time. Makes nothing on the heap after the constructor.
class Workers {
 public:
  // For loops over [0, count), of which a thread gets at least `grain`.
  Workers(std::int64_t count, std::int64_t grain);

  // Calls body(begin, end) for pieces that together are [0, count).
  void run(c10::function_ref<void(std::int64_t begin, std::int64_t end)> body);

 private:
  at::Tensor items_;  // one byte each, never read: an item is known by its address
  at::TensorIterator iterator_;
  std::int64_t grain_;
};

}  // namespace lockstep::kernels
