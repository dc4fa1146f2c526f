// The commands of docs/service.md, as they stand there, with a worker that computes
// nothing; tests/system has the real one.
#include <sstream>

#include "tests/service/rig.h"

namespace lockstep::server {
namespace {

using ::testing::HasSubstr;

TEST(ServicePage, ItsCommandsWork) {
  std::istringstream page(test::read_file(test::source_root() / "docs" / "service.md"));
  std::string script = "set -e -o pipefail\ntrap 'kill %1 2>/dev/null || true' EXIT\n";
  std::string line;
  int count = 0;
  while (std::getline(page, line)) {
    if (!line.starts_with("    $ ")) continue;
    script += line.substr(6) + "\n";
    ++count;
  }
  EXPECT_GE(count, 20);
  const test::FakeInstallation installation;
  const files::TemporaryDirectory folder;
  const auto bin = std::filesystem::path(installation.program()).parent_path().string();
  const auto output =
      process::run({.arguments = {"bash", "-c", "PATH=" + bin + ":$PATH\n" + script},
                    .environment = {{"XDG_STATE_HOME", folder.path().string()},
                                    {"HOME", folder.path().string()}},
                    .directory = folder.path(),
                    .out = process::StreamMode::pipe,
                    .err = process::StreamMode::pipe},
                   std::chrono::minutes(1));
  ASSERT_TRUE(output.end.ok()) << output.out << output.err;
  EXPECT_THAT(output.out, HasSubstr("event: metrics"));
  EXPECT_THAT(output.out, HasSubstr("\"state\":\"done\""));
  EXPECT_THAT(output.out, HasSubstr("lockstep_server_jobs{state=\"done\"} 1"));
  EXPECT_THAT(output.out, HasSubstr("\"complete\":true"));
}

}  // namespace
}  // namespace lockstep::server
