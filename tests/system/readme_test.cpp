// The README's commands, run as they stand there.
#include "tests/system/command.h"

namespace lockstep {
namespace {

// The lines that start with "    $ " are commands; "build/bin/lockstep" is the one we
// built.
std::vector<std::string> readme_commands() {
  std::istringstream lines(test::read_file(test::source_root() / "README.md"));
  std::vector<std::string> commands;
  std::string line;
  while (std::getline(lines, line)) {
    if (line.rfind("    $ ", 0) == 0) commands.push_back(line.substr(6));
  }
  return commands;
}

TEST(Readme, ItsCommandsWork) {
  const files::TemporaryDirectory folder;
  const auto commands = readme_commands();
  int run = 0;
  for (auto command : commands) {
    if (command.rfind("./scripts/", 0) == 0) continue;  // these run this test
    command = command.substr(0, command.find(" #"));
    const std::string ours = "build/bin/lockstep";
    for (auto at = command.find(ours); at != std::string::npos;
         at = command.find(ours, at)) {
      const auto path = "'" + test::binary("lockstep").string() + "'";
      command.replace(at, ours.size(), path);
      at += path.size();
    }
    const auto output =
        process::run({.arguments = {"bash", "-c", command},
                      .environment = {{"LOCKSTEP_RUN_DIR", folder.path().string()}},
                      .directory = test::source_root()},
                     std::chrono::minutes(2));
    EXPECT_TRUE(output.end.ok()) << command << "\n" << output.err;
    ++run;
  }
  EXPECT_GE(run, 4);
}

TEST(Readme, NamesBothScripts) {
  const auto commands = readme_commands();
  EXPECT_THAT(commands, testing::Contains(testing::HasSubstr("./scripts/demo.sh")));
  EXPECT_THAT(commands, testing::Contains(testing::HasSubstr("./scripts/test.sh")));
}

}  // namespace
}  // namespace lockstep
