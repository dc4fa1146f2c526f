// lockstep: the control plane's program. Everything it does is in lockstep/cli.
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "lockstep/base/terminal.h"
#include "lockstep/cli/command.h"

extern char** environ;  // NOLINT: POSIX's name for it

namespace {

using lockstep::cli::Context;

std::vector<std::pair<std::string, std::string>> environment() {
  std::vector<std::pair<std::string, std::string>> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry);
    const auto equals = text.find('=');
    if (equals == std::string::npos) continue;
    variables.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

bool wants_color(const Context& context, int stream) {
  return lockstep::terminal::wants_color(
      [&](std::string_view name) { return context.variable(name); },
      ::isatty(stream) == 1);
}

// Returns whether standard output is a pipe without a reader.
bool broken_pipe() {
  pollfd output{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  return ::poll(&output, 1, 0) > 0 && (output.revents & POLLERR) != 0;
}

// A result that did not reach the disk is a failure; a reader that went away is not.
int check_output(int status) {
  // The cause of an earlier failure is not known any more.
  const bool was_good = std::cout.good();
  errno = 0;
  std::cout.flush();
  const int reason = was_good ? errno : 0;
  if (std::cout || broken_pipe()) return status;
  std::cerr << "lockstep: error: cannot write the result to standard output"
            << (reason == 0 ? "" : ": ") << (reason == 0 ? "" : std::strerror(reason))
            << "\n";
  return status == 0 ? 3 : status;
}

}  // namespace

int main(int argc, char** argv) {
  lockstep::terminal::open_standard_streams();
  // A closed pipe (`lockstep runs | head`) must not kill a launcher.
  ::signal(SIGPIPE, SIG_IGN);
  // A limit of file sizes (ulimit -f) is an error of a write, not the end.
  ::signal(SIGXFSZ, SIG_IGN);
  const std::string program = argc > 0 ? argv[0] : "lockstep";
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  const auto variables = environment();
  std::error_code ignored;
  Context context{
      .out = std::cout,
      .err = std::cerr,
      .environment = variables,
      .executable = std::filesystem::read_symlink("/proc/self/exe", ignored).string(),
      .command_line = lockstep::cli::command_line(program, words, variables),
      .program = program};
  context.color_out = wants_color(context, STDOUT_FILENO);
  context.color_err = wants_color(context, STDERR_FILENO);
  return check_output(lockstep::cli::run(words, context));
}
