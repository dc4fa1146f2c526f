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

// In a folder that looks like the checkout, so that the runs do not land in the real
// one.
TEST(Readme, ItsCommandsWork) {
  const files::TemporaryDirectory folder;
  std::filesystem::create_symlink(test::source_root() / "recipes",
                                  folder.path() / "recipes");
  std::filesystem::create_directory(folder.path() / "build");
  std::filesystem::create_symlink(test::binary("lockstep").parent_path(),
                                  folder.path() / "build" / "bin");
  int run = 0;
  for (const auto& command : readme_commands()) {
    if (command.rfind("./scripts/", 0) == 0) continue;  // these run this test
    const auto output =
        process::run({.arguments = {"bash", "-c", command}, .directory = folder.path()},
                     std::chrono::minutes(2));
    EXPECT_TRUE(output.end.ok()) << command << "\n" << output.err;
    ++run;
  }
  EXPECT_GE(run, 4);
}

TEST(Readme, ItsProgramIsTheExample) {
  const auto readme = test::read_file(test::source_root() / "README.md");
  const auto begin = readme.find("```cpp\n");
  ASSERT_NE(begin, std::string::npos);
  const auto code = begin + std::string("```cpp\n").size();
  const auto shown = readme.substr(code, readme.find("```", code) - code);
  EXPECT_THAT(test::read_file(test::source_root() / "examples/own_model.cpp"),
              testing::HasSubstr(shown));
}

TEST(Readme, NamesBothScripts) {
  const auto commands = readme_commands();
  EXPECT_THAT(commands, testing::Contains(testing::HasSubstr("./scripts/demo.sh")));
  EXPECT_THAT(commands, testing::Contains(testing::HasSubstr("./scripts/test.sh")));
}

}  // namespace
}  // namespace lockstep
