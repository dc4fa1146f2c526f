#pragma once

#include <ATen/autocast_mode.h>

namespace lockstep::models {

// While it lives, autocast keeps no casted copies of weights on this thread: they would
// outlive a graph that is computed again, or weights whose memory is freed.
class WithoutCastCache {
 public:
  WithoutCastCache() : before_(at::autocast::is_autocast_cache_enabled()) {
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~WithoutCastCache() { at::autocast::set_autocast_cache_enabled(before_); }
  WithoutCastCache(const WithoutCastCache&) = delete;
  WithoutCastCache& operator=(const WithoutCastCache&) = delete;

 private:
  const bool before_;
};

}  // namespace lockstep::models
