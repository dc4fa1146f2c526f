// Chooses the program of `lockstep launch`: the one named, or Python with it.
#include <filesystem>

#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/detail/launch.h"

namespace lockstep::cli {
namespace {

bool is_executable_file(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) &&
         ::access(path.c_str(), X_OK) == 0;
}

bool is_on_path(const LaunchWords& words, const std::string& program) {
  for (const auto& directory : text::split(words.variable("PATH").value_or(""), ':')) {
    if (is_executable_file(std::filesystem::path(directory.empty() ? "." : directory) /
                           program)) {
      return true;
    }
  }
  return false;
}

// An executable script names its own interpreter.
bool runs_by_itself(const std::string& script) {
  if (!is_executable_file(script)) return false;
  constexpr std::int64_t kLargestScript = 64 << 20;
  return text::starts_with(files::read(script, kLargestScript), "#!");
}

void require_there(const LaunchWords& words, const std::string& program) {
  const bool is_path = program.find('/') != std::string::npos;
  std::error_code error;
  if (is_path ? is_executable_file(program) : is_on_path(words, program)) return;
  if (!is_path) {
    throw Error(Fault::config, "launch: '", program, "' is not a program on PATH",
                std::filesystem::exists(program, error)
                    ? str("; for the one in this directory write ./", program)
                    : "; give its path");
  }
  throw Error(Fault::config, "launch: '", program, "' ",
              std::filesystem::exists(program, error) ? "is not an executable file"
                                                      : "does not exist",
              "; build it, or correct the path");
}

}  // namespace

std::vector<std::string> program_command(const LaunchWords& words,
                                         std::vector<std::string>& notes) {
  auto command = words.program();
  const bool module = words.has("--module");
  const bool no_python = words.has("--no-python");
  if (module && no_python) {
    throw Error(Fault::config,
                "--module and --no-python contradict each other; a "
                "module needs Python: leave --no-python out");
  }
  const auto python = words.variable("PYTHON_EXEC").value_or("python3");
  const auto& program = command[0];
  if (module) {
    command.insert(command.begin(), {python, "-u", "-m"});
  } else if (program.ends_with(".py") && !no_python) {
    std::error_code error;
    if (!std::filesystem::exists(program, error)) {
      throw Error(Fault::config, "launch: '", program,
                  "' does not exist; correct the path");
    }
    if (runs_by_itself(program)) {
      if (program.find('/') == std::string::npos) command[0] = "./" + program;
    } else {
      notes.push_back(
          str("'", program, "' is a Python script: running ", python, " -u ", program));
      command.insert(command.begin(), {python, "-u"});
    }
  }
  require_there(words, command[0]);
  return command;
}

}  // namespace lockstep::cli
