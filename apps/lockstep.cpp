// lockstep: the control plane's program. Everything it does is in lockstep/cli.
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include <signal.h>
#include <unistd.h>

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

// NO_COLOR (any value) wins, then FORCE_COLOR and CLICOLOR_FORCE, then what the stream
// is.
bool wants_color(const Context& context, int stream) {
  if (context.variable("NO_COLOR")) return false;
  for (const auto* name : {"FORCE_COLOR", "CLICOLOR_FORCE"}) {
    const auto force = context.variable(name);
    if (force && *force != "0") return true;
  }
  return context.variable("TERM") != "dumb" && ::isatty(stream) == 1;
}

// A result that did not reach the disk is a failure; a reader that went away is not.
int check_output(int status) {
  errno = 0;
  std::cout.flush();
  if (std::cout || errno == EPIPE || errno == 0) return status;
  std::cerr << "lockstep: error: can not write the result: " << std::strerror(errno)
            << "\n";
  return status == 0 ? 3 : status;
}

}  // namespace

int main(int argc, char** argv) {
  // A closed pipe (`lockstep runs | head`) must not kill a launcher.
  ::signal(SIGPIPE, SIG_IGN);
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  std::error_code ignored;
  Context context{
      .out = std::cout,
      .err = std::cerr,
      .environment = environment(),
      .executable = std::filesystem::read_symlink("/proc/self/exe", ignored).string(),
      .command_line = lockstep::cli::command_line(words)};
  context.color_out = wants_color(context, STDOUT_FILENO);
  context.color_err = wants_color(context, STDERR_FILENO);
  return check_output(lockstep::cli::run(words, context));
}
