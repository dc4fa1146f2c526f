// The commands that ask the service, on its machine and from afar.
#include "lockstep/base/text.h"
#include "tests/server/support/served.h"

namespace lockstep::server {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

// Whether they ask over HTTP, or work on the service of this machine directly.
class CommandsTest : public ::testing::TestWithParam<bool> {
 protected:
  CommandsTest() {
    test::write_file(config(), "store: {dir: '" + served_.state().string() + "'}\n");
    test::write_file(recipe(), test::held_recipe(20));
    served_.start();
  }

  std::string config() const { return (folder_.path() / "server.yaml").string(); }
  std::string recipe() const { return (folder_.path() / "recipe.yaml").string(); }

  process::Output command(std::vector<std::string> words) {
    const auto where =
        GetParam() ? std::vector<std::string>{"--server", served_.url()}
                   : std::vector<std::string>{"--config", config(), "--as", "local"};
    words.insert(words.end(), where.begin(), where.end());
    return served_.command(std::move(words));
  }

  std::string submit(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"submit", recipe()});
    const auto output = command(std::move(more));
    EXPECT_TRUE(output.end.ok()) << output.err;
    return std::string(text::trim(output.out));
  }

  files::TemporaryDirectory folder_;
  test::Served served_;
};

TEST_P(CommandsTest, AJobIsSubmittedListedPausedResumedAndCancelled) {
  const auto id = submit({"--name", "mine", "--priority", "-3", "--retries", "2"});
  ASSERT_TRUE(served_.reaches(id, "running"));
  EXPECT_THAT(command({"jobs"}).out, HasSubstr(id));
  const auto shown = Json::parse(command({"jobs", id, "--json"}).out);
  EXPECT_EQ(shown["name"], "mine");
  EXPECT_EQ(shown["priority"], -3);
  EXPECT_EQ(shown["max_retries"], 2);
  EXPECT_TRUE(command({"pause", id}).end.ok());
  ASSERT_TRUE(served_.reaches(id, "paused"));
  EXPECT_THAT(command({"resume", id, "--cores", "2"}).out, HasSubstr(id + " is "));
  ASSERT_TRUE(served_.reaches(id, "running"));
  EXPECT_TRUE(test::eventually([&] {
    return command({"logs", id}).out.find("step") != std::string::npos;
  }));
  EXPECT_TRUE(command({"cancel", id}).end.ok());
  EXPECT_TRUE(served_.reaches(id, "cancelled"));
}

TEST_P(CommandsTest, WhatIsNotPossibleIsSaidInOneLine) {
  const auto unknown = command({"cancel", "job-none"});
  EXPECT_FALSE(unknown.end.ok());
  EXPECT_THAT(unknown.err, HasSubstr("there is no such job"));
  test::write_file(recipe(), "{\"data\": {\"dir\": \"/etc\"}}");
  const auto refused = command({"submit", recipe()});
  EXPECT_FALSE(refused.end.ok());
  EXPECT_THAT(refused.err, HasSubstr("data.dir"));
  EXPECT_EQ(Json::parse(served_.ask("GET", "/v1/jobs").body)["items"].size(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Ways, CommandsTest, ::testing::Bool(),
                         [](const auto& way) { return way.param ? "Afar" : "Here"; });

TEST(KubernetesCommand, TheManifestHasTheRecipeAndWhatItIsToRunOn) {
  const files::TemporaryDirectory folder;
  const auto recipe = (folder.path() / "recipe.yaml").string();
  test::write_file(recipe, "train: {steps: 7}\n");
  const std::vector<std::string> words{test::binary("lockstep").string(),
                                       "submit",
                                       recipe,
                                       "--to",
                                       "kubernetes",
                                       "--image",
                                       "registry.example/lockstep:1",
                                       "--gpus",
                                       "2"};
  EXPECT_THAT(test::run(words).err, HasSubstr("--dry-run"));
  auto dry = words;
  dry.emplace_back("--dry-run");
  const auto output = test::run(dry);
  ASSERT_TRUE(output.end.ok()) << output.err;
  const auto items = Json::parse(output.out).at("items");
  std::string kinds;
  for (const auto& item : items) kinds += item["kind"].get<std::string>() + " ";
  EXPECT_EQ(kinds, "ConfigMap Job ");
  EXPECT_THAT(items[0].dump(), HasSubstr("steps: 7"));
  EXPECT_THAT(items[1].dump(),
              ::testing::AllOf(HasSubstr("registry.example/lockstep:1"),
                               HasSubstr("\"nvidia.com/gpu\":\"2\"")));
}

}  // namespace
}  // namespace lockstep::server
