// The commands of docs/tutorial.md, run as they stand there; what
// docs/troubleshooting.md quotes is said somewhere.
#include <regex>

#include "tests/system/command.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

TEST(Tutorial, ItsCommandsWork) {
  const files::TemporaryDirectory folder;
  for (const auto* part : {"recipes", "tools"}) {
    fs::create_symlink(test::source_root() / part, folder.path() / part);
  }
  fs::create_symlink(test::binary("lockstep").parent_path().parent_path(),
                     folder.path() / "build");
  std::istringstream lines(test::read_file(test::source_root() / "docs/tutorial.md"));
  int run = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("    $ ", 0) != 0) continue;
    const auto output = process::run(
        {.arguments = {"bash", "-c", line.substr(6)}, .directory = folder.path()},
        std::chrono::minutes(2));
    EXPECT_TRUE(output.end.ok()) << line << "\n" << output.err;
    ++run;
  }
  EXPECT_GE(run, 15);
}

std::string all_sources() {
  std::string text;
  for (const auto* part : {"lockstep", "apps"}) {
    for (const auto& entry :
         fs::recursive_directory_iterator(test::source_root() / part)) {
      if (entry.path().extension() == ".cpp") text += test::read_file(entry.path());
    }
  }
  // A literal may go on in the next line.
  return std::regex_replace(text, std::regex("\"\\s*\n\\s*\""), "");
}

TEST(Troubleshooting, WhatItQuotesIsSaid) {
  const auto sources = all_sources();
  std::istringstream lines(
      test::read_file(test::source_root() / "docs/troubleshooting.md"));
  int quoted = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("| `", 0) != 0) continue;
    const auto message = line.substr(3, line.find('`', 3) - 3);
    EXPECT_NE(sources.find(message), std::string::npos) << message;
    ++quoted;
  }
  EXPECT_GE(quoted, 10);
}

}  // namespace
}  // namespace lockstep
