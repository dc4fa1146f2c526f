#pragma once

namespace lockstep::train {

// Whether somebody has asked this process to stop. SIGINT and SIGTERM ask once; a
// second SIGINT ends the process at once, with exit status 130.
//
// The handlers only set a flag. It is read at the boundaries of steps, also while
// evaluating, so that what is written is whole.
class StopRequest {
 public:
  // Installs the handlers; the destructor puts the ones before back. One at a time.
  StopRequest();
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  // The signal that asked, or 0.
  int signal() const noexcept;
};

}  // namespace lockstep::train
