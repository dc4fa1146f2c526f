#pragma once

#include <functional>
#include <thread>

#include "lockstep/base/files.h"

namespace lockstep::launcher {

// Calls `on_death`, in a thread of its own, when the process that started this one has
// ended: launchers of others leave their ranks behind when they are killed.
class ParentWatch {
 public:
  explicit ParentWatch(std::function<void()> on_death);
  ~ParentWatch();
  ParentWatch(const ParentWatch&) = delete;
  ParentWatch& operator=(const ParentWatch&) = delete;

 private:
  void watch() const;

  std::function<void()> on_death_;
  int parent_;
  files::Descriptor ended_;  // of the parent, where the kernel has such
  files::Descriptor stop_read_, stop_write_;
  std::thread thread_;
};

}  // namespace lockstep::launcher
