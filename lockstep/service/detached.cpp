#include "lockstep/service/detached.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/service/secrets.h"

namespace lockstep::service {
namespace {

constexpr std::array<std::string_view, 15> kPassedOn{"PATH",
                                                     "HOME",
                                                     "USER",
                                                     "LOGNAME",
                                                     "LANG",
                                                     "TZ",
                                                     "TMPDIR",
                                                     "LD_LIBRARY_PATH",
                                                     "XDG_STATE_HOME",
                                                     "XDG_CACHE_HOME",
                                                     "XDG_DATA_HOME",
                                                     "LOCKSTEP_LIBTORCH",
                                                     "CUDA_HOME",
                                                     "CUDA_DEVICE_ORDER",
                                                     "MLFLOW_TRACKING_URI"};

// Settings of libraries below us; LC_ is for languages.
constexpr std::array<std::string_view, 5> kPassedPrefixes{"NCCL_", "GLOO_", "LC_",
                                                          "TORCH_NCCL_", "SLURM_"};

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (auto& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

// Everything that the new process needs, made before the fork: after it only system
// calls are allowed, since this process has threads.
struct Prepared {
  std::vector<std::string> words, variables;
  std::vector<char*> argv, envp;
  files::Descriptor null, failed_read, failed_write;
  cpu_set_t cpus{};
  bool pinned = false;
  std::string log, log_folder, folder;
  struct NewFile {
    std::string path, beside, content;
  };
  std::vector<NewFile> files;
  std::optional<UnixUser> user;
};

Prepared prepare_start(const Detached& wanted) {
  Prepared prepared;
  prepared.words = wanted.arguments;
  for (const auto& [name, value] : wanted.environment) {
    prepared.variables.push_back(name + "=" + value);
  }
  prepared.argv = pointers(prepared.words);
  prepared.envp = pointers(prepared.variables);
  prepared.null = files::Descriptor(::open("/dev/null", O_RDWR | O_CLOEXEC));
  prepared.log = wanted.log.string();
  prepared.log_folder = wanted.log.parent_path().string();
  prepared.folder = wanted.folder.string();
  prepared.user = wanted.user;
  for (const auto& [path, content] : wanted.files) {
    // Its own name: the server before us may have left a child that writes it, too.
    constexpr std::size_t kRandomBytes = 4;
    prepared.files.push_back(
        {path.string(), path.string() + "." + random_hex(kRandomBytes), content});
  }
  std::array<int, 2> ends{};
  if (!prepared.null || ::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw Error(Fault::io, "cannot start a supervisor: ", std::strerror(errno));
  }
  prepared.failed_read = files::Descriptor(ends[0]);
  prepared.failed_write = files::Descriptor(ends[1]);
  CPU_ZERO(&prepared.cpus);
  for (const int cpu : wanted.cpus)
    CPU_SET(static_cast<std::size_t>(cpu), &prepared.cpus);
  prepared.pinned = !wanted.cpus.empty();
  return prepared;
}

void reset_signals() noexcept {
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// Returns false, with errno, if anything of it is not possible: there is no process
// with half of the rights.
bool take_user(const UnixUser& user) noexcept {
  const auto groups = user.groups.size();
  if (::setgroups(groups, user.groups.data()) != 0) return false;
  if (::setresgid(user.gid, user.gid, user.gid) != 0) return false;
  if (::setresuid(user.uid, user.uid, user.uid) != 0) return false;
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
}

// Beside the one that it takes the place of.
bool write_file(const Prepared::NewFile& file) noexcept {
  const int out = ::open(file.beside.c_str(),
                         O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (out < 0) return false;
  const char* bytes = file.content.data();
  auto left = file.content.size();
  while (left > 0) {
    const auto wrote = ::write(out, bytes, left);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return false;
    bytes += wrote;
    left -= static_cast<std::size_t>(wrote);
  }
  return ::fsync(out) == 0 && ::close(out) == 0;
}

// Returns false, with errno, if one of them can not be made.
bool make_places(const Prepared& prepared) noexcept {
  if (!prepared.folder.empty() && ::chdir(prepared.folder.c_str()) != 0) return false;
  if (::mkdir(prepared.log_folder.c_str(), 0700) != 0 && errno != EEXIST) return false;
  for (const auto& file : prepared.files) {
    if (write_file(file) && ::rename(file.beside.c_str(), file.path.c_str()) == 0) {
      continue;
    }
    const int reason = errno;
    ::unlink(file.beside.c_str());
    errno = reason;
    return false;
  }
  const int log =
      ::open(prepared.log.c_str(),
             O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  if (log < 0) return false;
  ::dup2(log, STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
  return true;
}

bool pin(const Prepared& prepared) noexcept {
  return !prepared.pinned ||
         ::sched_setaffinity(0, sizeof(prepared.cpus), &prepared.cpus) == 0;
}

[[noreturn]] void become(const Prepared& prepared) noexcept {
  ::setsid();
  // A second fork: init inherits it, and its end is nobody's business here.
  const pid_t inner = ::fork();
  if (inner != 0) ::_exit(inner > 0 ? 0 : 1);
  reset_signals();
  // What a job writes is its user's, whatever the server was started with.
  ::umask(077);
  ::dup2(prepared.null.get(), STDIN_FILENO);
  const bool ready = pin(prepared) && (!prepared.user || take_user(*prepared.user)) &&
                     make_places(prepared);
  if (ready) {
    // All others are CLOEXEC by our own rule; a library's may not be.
    const auto last = static_cast<unsigned>(prepared.failed_write.get());
    if (last > 3) ::syscall(SYS_close_range, 3U, last - 1, 0U);
    ::syscall(SYS_close_range, last + 1, ~0U, 0U);
    ::execve(prepared.argv[0], prepared.argv.data(), prepared.envp.data());
  }
  const int reason = errno;
  static_cast<void>(::write(prepared.failed_write.get(), &reason, sizeof(reason)) == 0);
  ::_exit(127);
}

}  // namespace

void start_detached(const Detached& wanted) {
  auto prepared = prepare_start(wanted);
  const pid_t outer = ::fork();
  if (outer < 0) {
    throw Error(Fault::io, "cannot start a supervisor: ", std::strerror(errno));
  }
  if (outer == 0) become(prepared);
  prepared.failed_write.reset();
  int status = 0;
  while (::waitpid(outer, &status, 0) < 0 && errno == EINTR) {
  }
  int reason = 0;
  // Ends without a byte when the program runs: the pipe is closed by exec.
  const auto got = ::read(prepared.failed_read.get(), &reason, sizeof(reason));
  if (got == sizeof(reason) || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw Error(Fault::io, "cannot start '", wanted.arguments.at(0),
                "': ", std::strerror(reason));
  }
}

std::vector<std::pair<std::string, std::string>> clean_environment(
    const std::vector<std::pair<std::string, std::string>>& ours) {
  std::vector<std::pair<std::string, std::string>> kept;
  for (const auto& variable : ours) {
    const auto& name = variable.first;
    const bool named =
        std::find(kPassedOn.begin(), kPassedOn.end(), name) != kPassedOn.end();
    const bool prefixed =
        std::any_of(kPassedPrefixes.begin(), kPassedPrefixes.end(),
                    [&](std::string_view p) { return text::starts_with(name, p); });
    // An address with a user in it has the password as well.
    const bool is_secret =
        name.ends_with("_URI") && variable.second.find('@') != std::string::npos;
    if ((named || prefixed) && !is_secret) kept.push_back(variable);
  }
  return kept;
}

std::vector<std::pair<std::string, std::string>> environment_of(
    const UnixUser& user,
    const std::vector<std::pair<std::string, std::string>>& clean) {
  constexpr std::array<std::string_view, 7> kOurs{
      "HOME",           "USER",           "LOGNAME",      "TMPDIR",
      "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"};
  std::vector<std::pair<std::string, std::string>> result{
      {"HOME", user.home}, {"USER", user.name}, {"LOGNAME", user.name}};
  for (const auto& variable : clean) {
    const bool is_ours =
        std::find(kOurs.begin(), kOurs.end(), variable.first) != kOurs.end();
    if (!is_ours) result.push_back(variable);
  }
  return result;
}

}  // namespace lockstep::service
