#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lockstep/base/text.h"
#include "tests/support/oracle.h"
#include "tests/support/support.h"

// Jobs of several ranks, seen from outside.
namespace lockstep::test {

// Starting several LibTorch processes on a busy machine takes its time.
inline constexpr std::chrono::seconds kJobPatience{90};

inline std::vector<std::string> joined(std::vector<std::string> head,
                                       const std::vector<std::string>& tail) {
  head.insert(head.end(), tail.begin(), tail.end());
  return head;
}

inline std::string worker() {
  return binary("lockstep_worker").string();
}

// The real one, of the oracle's environment.
inline std::string torchrun() {
  return (Path(oracle_python()).parent_path() / "torchrun").string();
}

inline bool is_installed(const std::string& program) {
  return run({"/bin/sh", "-c", "command -v " + program}).end.ok();
}

// `lockstep launch <options> -- lockstep_worker <arguments>`.
inline std::vector<std::string> launch_worker(
    const std::vector<std::string>& options,
    const std::vector<std::string>& arguments) {
  const auto command = joined({binary("lockstep").string(), "launch"}, options);
  return joined(joined(command, {"--", worker()}), arguments);
}

// A port of this machine that is free now.
inline int free_port() {
  const files::Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const bool bound = ::bind(socket.get(), generic, sizeof address) == 0 &&
                     ::getsockname(socket.get(), generic, &size) == 0;
  EXPECT_TRUE(bound);
  return ntohs(address.sin_port);
}

// Nobody listens on it, nor holds it in order to. Connections that have ended and only
// wait for late packets do not count.
inline bool is_free(int port) {
  const files::Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) ==
             0 &&
         ::listen(socket.get(), 1) == 0;
}

inline bool has_variable(pid_t pid, const std::string& entry) {
  // A process that has ended, or of somebody else, reads as empty.
  const auto all = '\0' + read_file(str("/proc/", pid, "/environ"));
  return all.find('\0' + entry + '\0') != std::string::npos;
}

// The processes that have `entry` ("NAME=value") in their environment.
inline std::vector<pid_t> processes_with(const std::string& entry) {
  std::vector<pid_t> found;
  for (const auto& directory : std::filesystem::directory_iterator("/proc")) {
    const auto pid = text::to_integer(directory.path().filename().string());
    if (!pid || *pid == ::getpid()) continue;
    if (has_variable(static_cast<pid_t>(*pid), entry)) {
      found.push_back(static_cast<pid_t>(*pid));
    }
  }
  return found;
}

inline bool has_thread(pid_t pid, const std::string& name) {
  std::error_code gone;
  const Path tasks = str("/proc/", pid, "/task");
  for (std::filesystem::directory_iterator task(tasks, gone), end; !gone && task != end;
       task.increment(gone)) {
    if (read_file(task->path() / "comm") == name + "\n") return true;
  }
  return false;
}

// Waits until so many processes with `entry` have joined and exchange collectives:
// Gloo, or our shared memory, then has a thread of its name. False if kPatience has
// passed.
inline bool exchanging_ranks(const std::string& entry, int ranks) {
  return eventually([&] {
    const auto pids = processes_with(entry);
    return std::count_if(pids.begin(), pids.end(), [](pid_t pid) {
             return has_thread(pid, "pt_gloo_runloop") ||
                    has_thread(pid, "lockstep_shm");
           }) == ranks;
  });
}

// A command that runs while the test goes on; everything it prints is gathered. It and
// all that it starts carry a mark in their environment, by which they are found.
class Job {
 public:
  explicit Job(std::vector<std::string> arguments,
               std::vector<std::pair<std::string, std::string>> environment = {}) {
    environment.emplace_back("LOCKSTEP_TEST_MARK", mark_);
    environment.emplace_back("TMPDIR", folder_.path().string());  // for kept logs
    child_.emplace(process::Child::start({.arguments = std::move(arguments),
                                          .environment = std::move(environment),
                                          .directory = {},
                                          .out = process::StreamMode::pipe,
                                          .err = process::StreamMode::pipe}));
    reader_ = std::jthread([this](const std::stop_token& stop) { read(stop); });
  }

  // A test that has failed leaves nothing behind either.
  ~Job() {
    for (const auto pid : all()) ::kill(pid, SIGKILL);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  pid_t pid() const { return child_->pid(); }

  std::string text() const {
    const std::scoped_lock lock(mutex_);
    return text_;
  }

  // Nothing if it has not ended within `limit`; else text() has all that it printed.
  std::optional<process::End> wait_for(std::chrono::milliseconds limit) {
    const auto end = child_->wait_for(limit);
    EXPECT_TRUE(!end || eventually([&] { return all_read_.load(); }));
    return end;
  }

  // A process of it with `entry` in its environment, 0 if there is none.
  pid_t with(const std::string& entry) const {
    const auto pids = all();
    const auto found = std::find_if(
        pids.begin(), pids.end(), [&](pid_t pid) { return has_variable(pid, entry); });
    return found == pids.end() ? 0 : *found;
  }

  // Throws if it is not there: nobody should signal process 0, which is everybody.
  pid_t rank(int rank) const {
    const auto pid = with(str("RANK=", rank));
    if (pid == 0) throw Error(Fault::internal, "there is no rank ", rank, ": ", text());
    return pid;
  }

  // Waits until so many ranks of this machine have joined and exchange collectives.
  bool exchanges(int ranks) const {
    return exchanging_ranks("LOCKSTEP_TEST_MARK=" + mark_, ranks);
  }

  // It and all that it has started.
  std::vector<pid_t> all() const {
    return processes_with("LOCKSTEP_TEST_MARK=" + mark_);
  }

  // Nothing of it is left; the kernel may take a moment for the last one.
  bool is_gone() const {
    return eventually([&] { return all().empty(); });
  }

 private:
  void read(const std::stop_token& stop) {
    std::array<pollfd, 2> ready{{{.fd = child_->out().get(), .events = POLLIN},
                                 {.fd = child_->err().get(), .events = POLLIN}}};
    while (!stop.stop_requested() && (ready[0].fd >= 0 || ready[1].fd >= 0)) {
      ::poll(ready.data(), ready.size(), 20);
      for (auto& stream : ready) {
        if (stream.fd < 0 || stream.revents == 0) continue;
        char buffer[1 << 12];
        const auto got = ::read(stream.fd, buffer, sizeof buffer);
        if (got <= 0) stream.fd = -1;
        const std::scoped_lock lock(mutex_);
        if (got > 0) text_.append(buffer, static_cast<std::size_t>(got));
      }
    }
    all_read_ = true;
  }

  static inline std::atomic<int> next_{0};
  files::TemporaryDirectory folder_;
  const std::string mark_ = str(::getpid(), ".", next_++);
  std::optional<process::Child> child_;
  mutable std::mutex mutex_;  // guards the text
  std::string text_;
  std::atomic<bool> all_read_{false};
  std::jthread reader_;
};

}  // namespace lockstep::test
