#include "lockstep/base/process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/error.h"

extern char** environ;  // NOLINT: POSIX's name for it

namespace lockstep::process {
namespace {

using files::Descriptor;

std::pair<Descriptor, Descriptor> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw Error(Fault::io, "cannot make a pipe: ", std::strerror(errno));
  }
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

// Everything the child needs, made before the fork: after it only async-signal-safe
// calls are allowed.
struct Prepared {
  std::vector<char*> arguments;
  std::vector<std::string> environment_text;
  std::vector<char*> environment;
  Descriptor out_read, out_write, err_read, err_write, null;
  Descriptor failure_read, failure_write;
  std::vector<cpu_set_t> cpus;  // as one long mask
  pid_t parent = ::getpid();
};

void prepare_environment(const ProcessOptions& command, Prepared& p) {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const auto name = text.substr(0, text.find('='));
    bool replaced = false;
    for (const auto& [key, value] : command.environment) replaced |= key == name;
    if (!replaced) p.environment_text.emplace_back(text);
  }
  for (const auto& [key, value] : command.environment) {
    p.environment_text.push_back(str(key, "=", value));
  }
  for (auto& text : p.environment_text) p.environment.push_back(text.data());
  p.environment.push_back(nullptr);
}

// The child's report when exec failed.
struct StartFailure {
  int error = 0;
  bool by_cpus = false;
};

void prepare_cpus(const ProcessOptions& command, Prepared& p) {
  for (const int cpu : command.cpus) {
    LOCKSTEP_CHECK(cpu >= 0, cpu);
    const auto index = static_cast<std::size_t>(cpu);
    if (index / CPU_SETSIZE >= p.cpus.size()) p.cpus.resize(index / CPU_SETSIZE + 1);
    CPU_SET_S(index, p.cpus.size() * sizeof(cpu_set_t), p.cpus.data());
  }
}

Prepared prepare(const ProcessOptions& command) {
  LOCKSTEP_CHECK(!command.arguments.empty());
  Prepared p;
  for (const auto& argument : command.arguments) {
    p.arguments.push_back(const_cast<char*>(argument.c_str()));  // NOLINT: exec's type
  }
  p.arguments.push_back(nullptr);
  prepare_environment(command, p);
  prepare_cpus(command, p);
  if (command.out == StreamMode::pipe) std::tie(p.out_read, p.out_write) = make_pipe();
  if (command.err == StreamMode::pipe) std::tie(p.err_read, p.err_write) = make_pipe();
  if (command.out == StreamMode::discard || command.err == StreamMode::discard) {
    p.null = Descriptor(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  }
  std::tie(p.failure_read, p.failure_write) = make_pipe();
  return p;
}

[[noreturn]] void become(const ProcessOptions& command, const Prepared& p) {
  if (command.own_group) ::setpgid(0, 0);
  if (command.die_with_parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != p.parent) ::_exit(127);  // the parent died before prctl
  }
  const auto redirect = [&](StreamMode how, const Descriptor& pipe_end, int target) {
    if (how == StreamMode::pipe) ::dup2(pipe_end.get(), target);
    if (how == StreamMode::discard) ::dup2(p.null.get(), target);
  };
  redirect(command.out, p.out_write, STDOUT_FILENO);
  redirect(command.err, p.err_write, STDERR_FILENO);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  // exec gives caught signals their default back, and keeps ignored ones ignored, which
  // is what nohup counts on; these are the ones that our own programs ignore for
  // themselves.
  ::signal(SIGPIPE, SIG_DFL);
  ::signal(SIGXFSZ, SIG_DFL);
  StartFailure failure;
  failure.by_cpus =
      !p.cpus.empty() &&
      ::sched_setaffinity(0, p.cpus.size() * sizeof(cpu_set_t), p.cpus.data()) != 0;
  bool ready = !failure.by_cpus;
  if (ready && !command.directory.empty()) {
    ready = ::chdir(command.directory.c_str()) == 0;
  }
  if (ready) {
    environ = const_cast<char**>(p.environment.data());  // NOLINT: execvp reads it
    ::execvp(p.arguments[0], p.arguments.data());
  }
  failure.error = errno;
  if (::write(p.failure_write.get(), &failure, sizeof failure) < 0) ::_exit(126);
  ::_exit(127);
}

}  // namespace

std::string signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return name == nullptr ? str("signal ", number) : str("SIG", name);
}

std::string describe(const End& end) {
  if (end.signal != 0) {
    return str("signal ", end.signal, " (", signal_name(end.signal), ")");
  }
  return str("exit status ", end.exit_status);
}

Child Child::start(const ProcessOptions& command) {
  Prepared p = prepare(command);
  const pid_t pid = ::fork();
  if (pid < 0) {
    throw Error(Fault::io, "cannot start '", command.arguments[0],
                "': ", std::strerror(errno));
  }
  if (pid == 0) become(command, p);

  Child child;
  child.pid_ = pid;
  child.own_group_ = command.own_group;
  child.out_ = std::move(p.out_read);
  child.err_ = std::move(p.err_read);
  if (command.own_group) ::setpgid(pid, pid);  // in both: whoever comes first
  child.pidfd_ = Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  p.failure_write.reset();
  StartFailure failure;
  // Ends at once when exec closes the pipe.
  if (::read(p.failure_read.get(), &failure, sizeof failure) == sizeof failure) {
    child.wait();
    throw Error(Fault::io, "cannot start '", command.arguments[0], "'",
                failure.by_cpus ? " on the CPUs chosen for it: " : ": ",
                std::strerror(failure.error));
  }
  return child;
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      own_group_(other.own_group_),
      end_(other.end_),
      pidfd_(std::move(other.pidfd_)),
      out_(std::move(other.out_)),
      err_(std::move(other.err_)) {}

Child::~Child() {
  if (pid_ < 0 || end_) return;
  signal(SIGKILL);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
}

End Child::reaped(int status) noexcept {
  End end;
  if (WIFSIGNALED(status)) {
    end.signal = WTERMSIG(status);
  } else {
    end.exit_status = WEXITSTATUS(status);
  }
  end_ = end;
  return end;
}

std::optional<End> Child::poll() {
  if (end_) return end_;
  int status = 0;
  const pid_t got = ::waitpid(pid_, &status, WNOHANG);
  if (got != pid_) return std::nullopt;
  return reaped(status);
}

End Child::wait() {
  if (end_) return *end_;
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0) {
    LOCKSTEP_CHECK(errno == EINTR, std::strerror(errno));
  }
  return reaped(status);
}

std::optional<End> Child::wait_for(std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (true) {
    if (auto end = poll()) return end;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return std::nullopt;
    pollfd ended{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
    // Without pidfd (old kernels) look again every 20 ms.
    const auto slice = pidfd_ ? left.count() : std::min<long>(left.count(), 20);
    ::poll(&ended, pidfd_ ? 1 : 0, static_cast<int>(std::min<long>(slice, 1 << 30)));
  }
}

void Child::signal(int number) noexcept {
  if (pid_ < 0 || end_) return;
  ::kill(own_group_ ? -pid_ : pid_, number);
}

namespace {

// A process that waits inside a driver (a GPU that hangs) does not die.
End kill(Child& child) {
  constexpr std::chrono::seconds kDying{10};
  child.signal(SIGKILL);
  if (const auto end = child.wait_for(kDying)) return *end;
  child.leave();
  return {.exit_status = 0, .signal = SIGKILL};
}

}  // namespace

Output run(ProcessOptions command, std::chrono::milliseconds limit) {
  command.out = command.err = StreamMode::pipe;
  auto child = Child::start(command);
  Output output;
  const auto deadline = std::chrono::steady_clock::now() + limit;
  bool killed = false;
  std::array<std::pair<Descriptor*, std::string*>, 2> streams{
      {{&child.out(), &output.out}, {&child.err(), &output.err}}};
  while (child.out() || child.err()) {
    std::array<pollfd, 2> wanted{};
    for (std::size_t i = 0; i < 2; ++i) {
      wanted[i] = {.fd = streams[i].first->get(), .events = POLLIN, .revents = 0};
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) {
      if (killed) break;  // a grandchild holds the pipe: do not wait for it
      killed = true;
      output.end = kill(child);
    }
    ::poll(wanted.data(), wanted.size(),
           static_cast<int>(std::clamp<long>(left.count(), 0, 1 << 30)));
    for (std::size_t i = 0; i < 2; ++i) {
      if (wanted[i].revents == 0) continue;
      char buffer[1 << 14];
      const auto got = ::read(wanted[i].fd, buffer, sizeof buffer);
      if (got > 0) streams[i].second->append(buffer, static_cast<std::size_t>(got));
      if (got == 0) streams[i].first->reset();
    }
  }
  if (killed) return output;
  if (const auto end = child.wait_for(std::chrono::ceil<std::chrono::milliseconds>(
          std::max(deadline - std::chrono::steady_clock::now(),
                   std::chrono::steady_clock::duration::zero())))) {
    output.end = *end;
  } else {
    output.end = kill(child);
  }
  return output;
}

}  // namespace lockstep::process
