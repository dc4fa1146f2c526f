#pragma once

#include <cstddef>
#include <vector>

namespace lockstep::parallel {

// A bucket that travels between ranks: of gradients, or of updated parameters where
// each rank changes a part of them.
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

// The times when the gradients of a step were ready and how long their sums were waited
// for, in seconds; straggler reports are made of them.
struct ExchangeTimes {
  // Times by bucket, in the order in which they start: since the step began, before its
  // collective starts. They are of the last pass of a step.
  std::vector<double> ready;
  double last_ready = 0;  // the latest of them
  double waited = 0;      // in finish(): of the calling thread, or of the GPU's stream
};

// Reports on the exchange of gradients.
class ExchangeMonitor {
 public:
  virtual ~ExchangeMonitor() = default;

  // Returns the times of the last finished step.
  virtual const ExchangeTimes& times() const noexcept = 0;

  // Tells the observer of what travels from now on; call it between two steps; nullptr:
  // none. It outlives what it was told.
  virtual void observe(ExchangeObserver* observer) noexcept = 0;
};

}  // namespace lockstep::parallel
