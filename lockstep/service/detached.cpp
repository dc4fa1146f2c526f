#include "lockstep/service/detached.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/service/as_owner.h"

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

struct Account {
  uid_t user = 0;
  gid_t group = 0;
  std::string home;
  std::vector<gid_t> groups;
};

std::optional<Account> account_of(const std::string& name) {
  if (name.empty()) return std::nullopt;
  std::vector<char> buffer(1 << 14);
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) != 0 ||
      found == nullptr) {
    throw Error(Fault::config, "user: this machine has no Unix user '", name, "'");
  }
  Account account{.user = entry.pw_uid, .group = entry.pw_gid, .home = entry.pw_dir};
  int count = 64;
  account.groups.resize(static_cast<std::size_t>(count));
  if (::getgrouplist(name.c_str(), account.group, account.groups.data(), &count) < 0) {
    count = 1;
    account.groups[0] = account.group;
  }
  account.groups.resize(static_cast<std::size_t>(count));
  return account;
}

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
  files::Descriptor null, log, failed_read, failed_write;
  cpu_set_t cpus{};
  bool pinned = false;
  std::optional<Account> account;
};

Prepared prepare_start(const Detached& wanted) {
  Prepared prepared;
  prepared.words = wanted.arguments;
  for (const auto& [name, value] : wanted.environment) {
    prepared.variables.push_back(name + "=" + value);
  }
  prepared.argv = pointers(prepared.words);
  prepared.envp = pointers(prepared.variables);
  prepared.account = account_of(wanted.unix_user);
  prepared.null = files::Descriptor(::open("/dev/null", O_RDWR | O_CLOEXEC));
  std::optional<AsOwner> owner;
  if (!wanted.folder.empty()) owner.emplace(wanted.folder);
  prepared.log = files::Descriptor(
      ::open(wanted.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW,
             0600));
  if (!prepared.log) files::fail("open", wanted.log, errno);
  std::array<int, 2> ends{};
  if (!prepared.null || ::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw Error(Fault::io, "can not start a supervisor: ", std::strerror(errno));
  }
  prepared.failed_read = files::Descriptor(ends[0]);
  prepared.failed_write = files::Descriptor(ends[1]);
  CPU_ZERO(&prepared.cpus);
  for (const int cpu : wanted.cpus)
    CPU_SET(static_cast<std::size_t>(cpu), &prepared.cpus);
  prepared.pinned = !wanted.cpus.empty();
  return prepared;
}

bool change_account(const Account& account) noexcept {
  return ::setgroups(account.groups.size(), account.groups.data()) == 0 &&
         ::setresgid(account.group, account.group, account.group) == 0 &&
         ::setresuid(account.user, account.user, account.user) == 0;
}

void reset_signals() noexcept {
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

[[noreturn]] void become(const Prepared& prepared) noexcept {
  ::setsid();
  // A second fork: init inherits it, and its end is nobody's business here.
  const pid_t inner = ::fork();
  if (inner != 0) ::_exit(inner > 0 ? 0 : 1);
  reset_signals();
  ::dup2(prepared.null.get(), STDIN_FILENO);
  ::dup2(prepared.log.get(), STDOUT_FILENO);
  ::dup2(prepared.log.get(), STDERR_FILENO);
  const bool ready = (!prepared.pinned || ::sched_setaffinity(0, sizeof(prepared.cpus),
                                                              &prepared.cpus) == 0) &&
                     (!prepared.account || change_account(*prepared.account));
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
    throw Error(Fault::io, "can not start a supervisor: ", std::strerror(errno));
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
    throw Error(Fault::io, "can not start '", wanted.arguments.at(0),
                "': ", std::strerror(reason));
  }
}

void become_home_of(const std::string& unix_user,
                    std::vector<std::pair<std::string, std::string>>& environment) {
  const auto account = account_of(unix_user);
  std::erase_if(environment, [](const auto& variable) {
    const auto& name = variable.first;
    return name == "HOME" || name == "USER" || name == "LOGNAME" ||
           text::starts_with(name, "XDG_");
  });
  environment.emplace_back("HOME", account->home);
  environment.emplace_back("USER", unix_user);
  environment.emplace_back("LOGNAME", unix_user);
}

void give_to(const std::string& unix_user, const files::Path& folder) {
  const auto account = account_of(unix_user);
  constexpr mode_t kPassable = 0711;
  for (const auto& above : {folder.parent_path(), folder.parent_path().parent_path()}) {
    if (::chmod(above.c_str(), kPassable) != 0) files::fail("open", above, errno);
  }
  if (::chmod(folder.c_str(), 0700) != 0 ||
      ::lchown(folder.c_str(), account->user, account->group) != 0) {
    files::fail("hand over", folder, errno);
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

}  // namespace lockstep::service
