#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace lockstep::models {

// While it lives, tensors that this thread makes have a shape and a dtype and no memory
// (torch's meta device): a model of any size can be built, counted and passed through.
// Initial values are not drawn. Reading the values of such a tensor throws.
class DeferredMemory {
 public:
  DeferredMemory();
  DeferredMemory(const DeferredMemory&) = delete;
  DeferredMemory& operator=(const DeferredMemory&) = delete;

 private:
  c10::impl::IncludeDispatchKeyGuard guard_;
};

}  // namespace lockstep::models
