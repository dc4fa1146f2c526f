#pragma once

namespace lockstep::train {

// Records whether a user or a batch system has asked this process to stop: by SIGINT,
// SIGTERM, SIGHUP or SIGUSR1 (sent by batch systems before the end). A second SIGINT
// ends the process at once, with exit status 130. SIGUSR2 asks for a checkpoint only. A
// signal that was ignored before stays so.
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

  // Returns the signal that asked, or 0.
  int signal() const noexcept;

  // Returns whether SIGUSR2 has come since the last call.
  bool take_save() const noexcept;
};

}  // namespace lockstep::train
