#pragma once

#include <cstddef>

namespace lockstep::parallel {

// What travels between ranks: a bucket of gradients, or one of the updated parameters
// where each rank changes a part of them.
struct Parcel {
  enum class Of { gradients, parameters };
  Of of = Of::gradients;
  std::size_t index = 0;
};

// Sees what a strategy sends, while a step is profiled. It must not wait for anything.
//
// Threads: started() of gradients comes from autograd's thread; nothing else runs on
//          this rank's then.
// Stream:  that which has filled the bucket, or which needs it.
class ExchangeObserver {
 public:
  virtual ~ExchangeObserver() = default;

  virtual void started(const Parcel& parcel) = 0;
  // The sum is seen to be there. It may have been for a while: on a CPU that is looked
  // at whenever another bucket starts and when all are waited for, on a GPU it is when
  // the stream that needs it goes on.
  virtual void arrived(const Parcel& parcel) = 0;
};

}  // namespace lockstep::parallel
