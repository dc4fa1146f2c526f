#include "tests/support/support.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/files.h"
#include "lockstep/base/instruction_sets.h"

namespace lockstep::test {
namespace {

// A suite that runs as a background job of a script is started with these ignored, and
// so would be every program that it starts: tests of signals need them as at a
// terminal.
const bool kSignalsAreAtTheirDefaults = [] {
  ::signal(SIGINT, SIG_DFL);
  ::signal(SIGHUP, SIG_DFL);
  return true;
}();

// Programs and oracles that a test starts inherit it.
const bool kInstructionsCanBeUsed = [] {
  leave_out_unusable_instructions();
  return true;
}();

// Tests that were carried to another machine are told what is where.
Path told(const char* variable, const Path& built) {
  const char* here = std::getenv(variable);
  return here != nullptr ? here : built;
}

// What programs learn from runs of tests is not for this person's own runs.
const bool kStateIsTheTests = [] {
  const auto shared = binary("").parent_path().parent_path() / "state_of_tests";
  const auto state = told("LOCKSTEP_TEST_STATE", shared);
  ::setenv("XDG_STATE_HOME", state.c_str(), 1);
  return true;
}();

}  // namespace

Path source_root() {
  return told("LOCKSTEP_TEST_SOURCE", LOCKSTEP_SOURCE_DIR);
}

Path binary(const std::string& name) {
  return told("LOCKSTEP_TEST_PROGRAMS", LOCKSTEP_BINARY_DIR) / name;
}

Path fixture(const std::string& below) {
  return source_root() / "tests" / below;
}

process::Output run(std::vector<std::string> arguments,
                    std::vector<std::pair<std::string, std::string>> environment) {
  return process::run({.arguments = std::move(arguments),
                       .environment = std::move(environment),
                       .directory = {}},
                      kPatience);
}

std::optional<Error> error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

std::string error_text(Fault fault, const std::function<void()>& body) {
  const auto error = error_of(body);
  if (!error) {
    ADD_FAILURE() << "no error, but fault " << name_of(fault) << " was expected";
    return "";
  }
  EXPECT_EQ(name_of(error->fault()), name_of(fault)) << error->what();
  return error->what();
}

int in_child(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    int status = 99;
    try {
      status = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "in_child: %s\n", error.what());
    }
    std::fflush(nullptr);
    ::_exit(status);
  }
  int status = 0;
  if (pid < 0 || ::waitpid(pid, &status, 0) != pid) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void limit_file_size(long bytes) {
  ::signal(SIGXFSZ, SIG_IGN);  // write() then fails with EFBIG
  const rlimit limit{static_cast<rlim_t>(bytes), static_cast<rlim_t>(bytes)};
  ::setrlimit(RLIMIT_FSIZE, &limit);
}

Path full_device(const Path& folder) {
  auto own = folder / "full";
  const auto made = ::mknod(own.c_str(), S_IFCHR | 0666, ::makedev(1, 7)) == 0;
  if (made && files::Descriptor(::open(own.c_str(), O_WRONLY | O_CLOEXEC))) return own;
  std::filesystem::remove(own);
  return "/dev/full";
}

bool become_nobody() {
  constexpr uid_t kNobody = 65534;
  return ::getuid() != 0 ||
         (::setgid(kNobody) == 0 && ::setuid(kNobody) == 0 && ::getuid() == kNobody);
}

bool eventually(const std::function<bool()>& condition) {
  // Conditions are about other processes, whose disk may be busy with something else.
  const auto deadline = std::chrono::steady_clock::now() + 3 * kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

void write_file(const Path& path, const std::string& content) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

std::string read_file(const Path& path) {
  std::ostringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  return content.str();
}

std::vector<std::string> names_in(const Path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace lockstep::test
