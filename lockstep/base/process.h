#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "lockstep/base/files.h"

namespace lockstep::process {

// The way in which a child ended.
struct End {
  int exit_status = 0;  // if the child exited
  int signal = 0;       // if the child was killed, else 0

  bool ok() const noexcept { return exit_status == 0 && signal == 0; }
  // Returns the status as a shell shows it: the exit status, or 128 + signal.
  int shell_status() const noexcept { return signal != 0 ? 128 + signal : exit_status; }
};

// Returns "SIGTERM".
std::string signal_name(int number);

// Returns "exit status 2" or "signal 9 (SIGKILL)".
std::string describe(const End& end);

enum class StreamMode { inherit, pipe, discard };

struct ProcessOptions {
  std::vector<std::string>
      arguments;  // the first is the program: a path, or found on PATH
  std::vector<std::pair<std::string, std::string>> environment;  // added to ours
  std::filesystem::path directory;                               // "": ours
  StreamMode out = StreamMode::inherit;
  StreamMode err = StreamMode::inherit;
  // The child leads its own process group, so that a terminal's Ctrl-C reaches only us
  // and we decide what it gets.
  bool own_group = false;
  // The child gets SIGKILL when the thread that started it ends, however that happens.
  bool die_with_parent = true;
  // The CPUs that the child and its children may run on; empty: ours.
  std::vector<int> cpus = {};
};

// A running child. The destructor kills and reaps one that was not waited for.
class Child {
 public:
  // Throws Fault::io if the program can not be started (missing, not executable, CPUs
  // that it may not have).
  static Child start(const ProcessOptions& command);

  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;
  ~Child();

  pid_t pid() const noexcept { return pid_; }
  // Returns the read ends of the piped streams.
  files::Descriptor& out() noexcept { return out_; }
  files::Descriptor& err() noexcept { return err_; }
  // Returns a descriptor for poll() that is readable when the child has ended.
  int pidfd() const noexcept { return pidfd_.get(); }

  std::optional<End> poll();
  End wait();
  std::optional<End> wait_for(std::chrono::milliseconds limit);

  // Signals the whole group if the child leads one; a child that has ended is no error.
  void signal(int number) noexcept;

  // Makes the destructor neither kill the child nor wait for it: for one that SIGKILL
  // does not end, because it waits inside a driver.
  void leave() noexcept { pid_ = -1; }

 private:
  Child() = default;
  End reaped(int status) noexcept;

  pid_t pid_ = -1;
  bool own_group_ = false;
  std::optional<End> end_;
  files::Descriptor pidfd_, out_, err_;
};

struct Output {
  End end;
  std::string out;
  std::string err;
};

// Runs a child to its end and gathers its output. A child that is still running after
// `limit` is killed and reported as killed; one that does not even die then is left.
Output run(ProcessOptions command, std::chrono::milliseconds limit);

}  // namespace lockstep::process
