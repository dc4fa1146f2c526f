#include <nlohmann/json.hpp>

#include "lockstep/config/print.h"
#include "tests/support/support.h"

namespace lockstep::test {

TEST(Reference, PageIsFresh) {
  EXPECT_EQ(read_file(source_root() / "docs/reference/config.md"),
            config::reference_markdown())
      << "refresh it: build/bin/lockstep config reference > docs/reference/config.md";
}

TEST(Reference, JsonHasAnObjectForEveryKnob) {
  const auto knobs = nlohmann::json::parse(config::reference_json()).at("knobs");
  std::vector<std::string> keys;
  for (const auto& knob : knobs) {
    keys.push_back(knob.at("key"));
    EXPECT_NE(knob.at("help"), "") << knob;
    if (knob.at("key") == "optim.lr") {
      EXPECT_EQ(knob.at("default"), 1e-3);
      EXPECT_EQ(knob.at("range"), "above 0");
      EXPECT_EQ(knob.at("affects"), "results");
    }
    if (knob.at("key") == "optim.name") {
      EXPECT_EQ(knob.at("default"), "adamw");
      EXPECT_EQ(knob.at("type"), "name");
      EXPECT_EQ(knob.at("choices"), (nlohmann::json{"adamw", "adam", "sgd", "lion"}));
    }
  }
  EXPECT_EQ(keys, config::keys());
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
