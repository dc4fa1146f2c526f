#include "lockstep/service/remote_recipe.h"

#include <set>

#include <nlohmann/json.hpp>

#include "lockstep/config/print.h"
#include "lockstep/service/refusal.h"
#include "tests/service/rig.h"

namespace lockstep::service {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const FindInput kNothing = [](const std::string&, const std::string&) {
  return std::nullopt;
};

std::string refusal_of(const RemoteRecipe& recipe, const FindInput& find = kNothing) {
  try {
    check_remote(recipe, find);
  } catch (const Refusal& refusal) {
    return refusal.what();
  }
  return "";
}

TEST(RemoteRecipe, APlainOneIsTaken) {
  EXPECT_EQ(refusal_of({.text = "{\"train\": {\"steps\": 3}}"}), "");
}

// Every knob that names something of this machine, in every way to spell it.
TEST(RemoteRecipe, AMarkedKnobIsRefusedInEverySpelling) {
  ASSERT_FALSE(config::local_keys().empty());
  for (const auto& key : config::local_keys()) {
    const auto dot = key.find('.');
    const auto section = key.substr(0, dot);
    const auto name = key.substr(dot + 1);
    for (const auto& text :
         {"{\"" + section + "\": {\"" + name + "\": \"/etc/passwd\"}}",
          section + ": {" + name + ": /etc/passwd}",
          section + ":\n  " + name + ": /etc/passwd\n",
          section + ":\n  \"" + name + "\": '/etc/passwd'\n",
          "? " + section + "\n: ? " + name + "\n  : ../x\n",
          section + ": {\"\\x" + "64" + name.substr(1) + "\": x}",
          section + ":\n  " + name + ": ''\n", section + ":\n  " + name + ": auto\n",
          "{\"" + key + "\": \"/etc/passwd\"}", section + ": &a {" + name + ": x}",
          section + ": {<<: {" + name + ": x}}",
          section + ": !!map {" + name + ": x}"}) {
      EXPECT_NE(refusal_of({.text = text}), "") << text;
    }
  }
}

// A new knob of free text has to be looked at: does it name something of this machine?
TEST(RemoteRecipe, EveryKnobOfFreeTextIsMarkedOrKnownToBeHarmless) {
  const std::set<std::string> harmless{"run.name",  // the server sets it
                                       "run.tags",  // words of a list
                                       "data.chat_template",
                                       "data.input",   // columns and arrays that are
                                       "data.target",  // looked for in what was read
                                       "data.weight",
                                       "checkpoint.allow_missing",
                                       "checkpoint.ignore",
                                       "monitor.mlflow_experiment",
                                       "monitor.wandb_project",
                                       "monitor.wandb_entity",
                                       "profile.steps",
                                       "lora.targets",
                                       "model.inputs",
                                       "model.outputs",
                                       "task.primary",
                                       "optim.no_decay",
                                       "eval.prompts",
                                       "early_stop.metric"};
  const auto local = config::local_keys();
  const std::set<std::string> marked(local.begin(), local.end());
  const auto reference = nlohmann::json::parse(config::reference_json());
  for (const auto& knob : reference.at("knobs")) {
    const auto type = knob.at("type").get<std::string>();
    if (type.find("text") == std::string::npos) continue;
    const auto key = knob.at("key").get<std::string>();
    EXPECT_TRUE(marked.contains(key) || harmless.contains(key))
        << key << ": mark it with is_local, or add it here";
  }
}

TEST(RemoteRecipe, AnInputTakesThePlaceOfAPath) {
  const FindInput find = [](const std::string& knob, const std::string& name) {
    EXPECT_EQ(knob, "data.dir");
    EXPECT_EQ(name, "mine");
    return std::optional<std::string>("/srv/da'ta");
  };
  const auto checked = check_remote(
      {.text = "{\"data\": {\"name\": \"tokens\"}}", .inputs = {{"data.dir", "mine"}}},
      find);
  EXPECT_EQ(checked.loaded.config.data.dir, "/srv/da'ta");
  EXPECT_EQ(checked.overrides.at(0).first, "data.dir");
}

TEST(RemoteRecipe, AnInputIsForKnobsOfFilesOnly) {
  for (const auto* knob : {"run.dir", "monitor.prometheus_address", "comm.interface",
                           "checkpoint.resume", "models.dir", "optim.lr", "x"}) {
    EXPECT_THAT(
        refusal_of({.text = "{\"train\": {\"steps\": 1}}", .inputs = {{knob, "mine"}}},
                   [](const std::string&, const std::string&) {
                     return std::optional<std::string>("/srv");
                   }),
        HasSubstr("takes none"))
        << knob;
  }
}

TEST(RemoteRecipe, AnErrorDoesNotSayWhereThingsAre) {
  const auto text = refusal_of(
      {.text = "{\"data\": {\"name\": \"synthetic\"}, \"batch\": {\"global\": -4}}",
       .inputs = {{"data.dir", "mine"}}},
      [](const std::string&, const std::string&) {
        return std::optional<std::string>("/srv/secret");
      });
  EXPECT_NE(text, "");
  EXPECT_THAT(text, Not(HasSubstr("secret")));
}

}  // namespace
}  // namespace lockstep::service
