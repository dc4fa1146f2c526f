#pragma once

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/files.h"
#include "lockstep/cli/command.h"
#include "tests/support/support.h"

namespace lockstep::test {

// The commands inside this process, with what they printed.
struct Outcome {
  int status = 0;
  std::string out;
  std::string err;
};

inline Outcome lockstep_in_process(
    const std::vector<std::string>& words,
    const std::vector<std::pair<std::string, std::string>>& environment = {}) {
  std::ostringstream out, err;
  cli::Context context{
      .out = out,
      .err = err,
      .environment = environment,
      .executable = "/no/such/place/lockstep",
      .command_line = cli::command_line("lockstep", words, environment)};
  const int status = cli::run(words, context);
  return {status, out.str(), err.str()};
}

// A place of its own with the real program and a shell script as its worker.
class Rig {
 public:
  explicit Rig(const std::string& worker_script = "exit 0\n") {
    std::filesystem::create_directories(directory_.path() / "bin");
    std::filesystem::copy_file(binary("lockstep"), program());
    worker(worker_script);
    write_file(path("recipe.yaml"), "train: {steps: 3}\n");
  }

  Path path(const std::string& below) const { return directory_.path() / below; }
  Path program() const { return path("bin/lockstep"); }

  // $2 is the run directory. It knows nothing of models.
  void worker(const std::string& script) const {
    const auto place = path("bin/lockstep_worker");
    write_file(place,
               "#!/bin/sh\n[ \"$1\" = --describe ] && { echo no models here >&2; exit "
               "2; }\n" +
                   script);
    std::filesystem::permissions(place, std::filesystem::perms(0755));
  }

  process::ProcessOptions command(std::vector<std::string> words) const {
    words.insert(words.begin(), program().string());
    return {.arguments = std::move(words),
            .environment = {{"XDG_STATE_HOME", path("state").string()}},
            .directory = directory_.path()};
  }

  process::Output run(std::vector<std::string> words) const {
    return process::run(command(std::move(words)), kPatience);
  }

 private:
  files::TemporaryDirectory directory_;
};

}  // namespace lockstep::test
