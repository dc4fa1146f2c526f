#include "lockstep/config/print.h"
#include "tests/support/support.h"

namespace lockstep::test {

TEST(Reference, PageIsFresh) {
  EXPECT_EQ(read_file(source_root() / "docs/reference/config.md"),
            config::reference_markdown())
      << "refresh it: build/bin/lockstep config reference > docs/reference/config.md";
}

TEST(Reference, EveryKnobHasItsRowAndEveryRowSixCells) {
  const auto page = config::reference_markdown();
  for (const auto& key : config::keys()) {
    const auto row = page.find("| `" + key + "` |");
    ASSERT_NE(row, std::string::npos) << key;
    const auto line = page.substr(row, page.find('\n', row) - row);
    EXPECT_EQ(std::count(line.begin(), line.end(), '|'), 7) << line;
    EXPECT_EQ(line.find("|  |  |"), std::string::npos) << "no help: " << line;
  }
}

}  // namespace lockstep::test
