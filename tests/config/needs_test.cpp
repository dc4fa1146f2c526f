#include "lockstep/config/needs.h"

#include <map>

#include <nlohmann/json.hpp>

#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/config/print.h"
#include "tests/config/recipe_file.h"
#include "tests/support/support.h"

namespace lockstep {
namespace {

using config::Loaded;
using config::Origin;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// What the reference says of a knob.
nlohmann::json about(std::string_view key) {
  static const auto kAll = nlohmann::json::parse(config::reference_json()).at("knobs");
  for (const auto& knob : kAll) {
    if (knob.at("key") == key) return knob;
  }
  return {};
}

// The first of the values that the knob takes.
void set_first(Loaded& loaded, std::string_view key,
               const std::vector<std::string>& values, Origin origin) {
  for (const auto& value : values) {
    if (!test::error_of([&] {
          config::set(loaded, {std::string(key), std::string(value)},
                      {origin, str(key, "=", value)});
        })) {
      return;
    }
  }
  ADD_FAILURE() << key << " takes none of " << text::join(values, ", ");
}

// Sets the knob of "optim.name=sgd|lion" so that the condition holds, or does not.
void settle(Loaded& loaded, const std::string& condition, bool holds) {
  const auto at = condition.find_first_of("!=>");
  const auto key = condition.substr(0, at);
  const auto sign = condition[at];
  const auto named = text::split(condition.substr(at + (sign == '!' ? 2 : 1)), '|');
  if (sign == '>') {
    const auto least = text::to_integer(named[0]).value();
    const auto value = str(holds ? least + 1 : least);
    return set_first(loaded, key, {value, value + "s"}, Origin::planner);
  }
  if (holds == (sign == '=')) {
    return set_first(loaded, key, {named[0].empty() ? "''" : named[0]},
                     Origin::planner);
  }
  std::vector<std::string> others;
  const auto reference = about(key);
  for (const std::string choice : reference.at("choices")) {
    if (choice != "auto" &&
        std::find(named.begin(), named.end(), choice) == named.end())
      others.push_back(choice);
  }
  for (const auto* other : {"false", "true", "7", "elsewhere", "{a: 1}"}) {
    if (named[0] != other) others.emplace_back(other);
  }
  set_first(loaded, key, others, Origin::planner);
}

// A config in which somebody set only this knob, beside others that need it or not.
Loaded beside(const config::Need& need, bool used) {
  auto loaded = config::defaults({}, {});
  const std::string own(need.key);
  const auto standard = config::get(loaded, own);
  set_first(loaded, own,
            standard == "auto" ? std::vector<std::string>{"gloo", "off", "stop", "min",
                                                          "1MiB", "1", "true"}
                               : std::vector<std::string>{standard},
            Origin::override_);
  std::string when(need.when);
  if (used) when = when.substr(0, when.find(" or "));
  for (auto at = when.find(" or "); at != std::string::npos; at = when.find(" or ")) {
    when.replace(at, 4, " and ");
  }
  for (auto at = when.find(" and "); at != std::string::npos; at = when.find(" and ")) {
    settle(loaded, when.substr(0, at), used);
    when.erase(0, at + 5);
  }
  settle(loaded, when, used);
  loaded.sources[own].origin = Origin::override_;
  return loaded;
}

TEST(Needs, EveryKnobOfTheTableIsNamedWhenItIsNotUsedAndOnlyThen) {
  for (const auto& need : config::needs()) {
    ASSERT_FALSE(about(need.key).is_null()) << need.key;
    const auto lines = config::unused_knobs(beside(need, false));
    ASSERT_EQ(lines.size(), 1u) << need.key;
    EXPECT_THAT(lines[0], HasSubstr(str(need.key, "=")));
    EXPECT_THAT(lines[0], HasSubstr(str("it needs ", need.when, ", and ")));
    EXPECT_THAT(config::unused_knobs(beside(need, true)), IsEmpty()) << need.key;
  }
}

TEST(Needs, AKnobWhoseHelpSaysWhatItBelongsToIsInTheTable) {
  const auto all = nlohmann::json::parse(config::reference_json()).at("knobs");
  const auto needs = config::needs();
  for (const auto& knob : all) {
    const std::string key = knob.at("key"), help = knob.at("help");
    const bool belongs = (text::starts_with(help, "Of ") && key != "data.mean") ||
                         text::starts_with(help, "synthetic:") ||
                         text::starts_with(help, "tokens:");
    if (!belongs) continue;
    EXPECT_TRUE(std::any_of(needs.begin(), needs.end(),
                            [&](const auto& need) { return need.key == key; }))
        << key << ": " << help;
  }
}

bool is_named(std::string_view key, const std::vector<config::Override>& words) {
  const auto lines = config::unused_knobs(config::defaults(words, {}));
  return std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
    return text::starts_with(line, str(key, "="));
  });
}

// Some alerts look at metrics, which are there without samples of the machine; some
// knobs of early_stop say which weights are the best, whoever wants these.
TEST(Needs, AKnobThatSomethingElseUsesIsNotNamed) {
  const config::Override unsampled{"monitor.sample_every", "0s"};
  EXPECT_FALSE(is_named("monitor.alert_data_wait",
                        {unsampled, {"monitor.alert_data_wait", "0.5"}}));
  EXPECT_FALSE(
      is_named("monitor.alert_after", {unsampled, {"monitor.alert_after", "5s"}}));
  EXPECT_TRUE(
      is_named("monitor.alert_memory", {unsampled, {"monitor.alert_memory", "0.5"}}));
  EXPECT_FALSE(is_named("early_stop.metric", {{"early_stop.metric", "accuracy"}}));
  EXPECT_TRUE(is_named("early_stop.min_delta", {{"early_stop.min_delta", "0.1"}}));
  EXPECT_FALSE(is_named("early_stop.min_delta", {{"early_stop.min_delta", "0.1"},
                                                 {"checkpoint.save_best", "true"}}));
}

TEST(Needs, TheLineSaysWhereTheKnobWasSetAndWhatItWouldTake) {
  const test::RecipeFile file("optim:\n  name: adam\n  momentum: 0.9\n");
  const std::vector<config::Override> words{{"parallel.zero_stage", "2"}};
  auto loaded = config::load(file.path(), words, {{"LOCKSTEP_EMA_DECAY", "0.5"}});
  config::set(loaded, {"parallel.strategy", "single"}, {Origin::planner, ""});
  EXPECT_THAT(
      config::unused_knobs(loaded),
      ElementsAre(
          file.path().string() +
              ":3:13: optim.momentum=0.9 is not used: it needs optim.name=sgd, and "
              "optim.name is adam",
          "LOCKSTEP_EMA_DECAY: ema.decay=0.5 is not used: it needs ema.enabled=true, "
          "and ema.enabled is false",
          "parallel.zero_stage=2 is not used: it needs parallel.strategy=zero, and "
          "parallel.strategy is single"));
}

TEST(Needs, DefaultsAndChoicesOfThePlannerAreNobodysWish) {
  auto loaded = config::defaults({}, {});
  config::set(loaded, {"optim.momentum", "0.5"}, {Origin::planner, "because"});
  EXPECT_THAT(config::unused_knobs(loaded), IsEmpty());
}

TEST(Needs, ARecipeOfAllKnobsAsksForThoseThatAreNotTheDefault) {
  auto loaded = config::defaults({}, {});
  config::set(loaded, {"optim.momentum", "0.5"}, {Origin::recipe, "x:1:1"});
  const test::RecipeFile file(config::to_yaml(loaded, false));
  const auto lines = config::unused_knobs(config::load(file.path(), {}, {}));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr("optim.momentum=0.5 is not used"));
}

}  // namespace
}  // namespace lockstep
