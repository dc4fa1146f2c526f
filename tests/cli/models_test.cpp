// `lockstep models`: what is there, and how it gets there.
#include <nlohmann/json.hpp>

#include "tests/cli/rig.h"
#include "tests/hf/support/gpt2_folder.h"

namespace lockstep {
namespace {

using nlohmann::json;
using test::lockstep_in_process;
using ::testing::AllOf;
using ::testing::HasSubstr;

class ModelsCommand : public ::testing::Test {
 protected:
  // `lockstep models WORDS...` with LOCKSTEP_MODELS_DIR.
  test::Outcome run(std::vector<std::string> words) {
    words.insert(words.begin(), "models");
    return lockstep_in_process(words,
                               {{"LOCKSTEP_MODELS_DIR", models_.path().string()}});
  }

  test::Gpt2Folder folder_;
  files::TemporaryDirectory models_;
};

TEST_F(ModelsCommand, AddsListsAndShows) {
  EXPECT_THAT(run({"list"}).err, HasSubstr("no models in"));
  const auto added = run({"add", "tiny", folder_.path().string()});
  EXPECT_EQ(added.status, 0) << added.err;
  EXPECT_THAT(added.out, AllOf(HasSubstr("1,896 parameters"), HasSubstr("2 blocks"),
                               HasSubstr("resid_pdrop=0.1")));
  EXPECT_THAT(run({"list"}).out, AllOf(HasSubstr("NAME"), HasSubstr("tiny")));
  const auto report = json::parse(run({"list", "--json"}).out);
  ASSERT_EQ(report["models"].size(), 1U);
  EXPECT_EQ(report["models"][0]["parameters"], 1896);
  EXPECT_EQ(json::parse(run({"show", "tiny", "--json"}).out)["hidden"], 8);
}

TEST_F(ModelsCommand, AModelThatIsNotThereComesWithTheWayToIt) {
  const auto outcome = run({"show", "gpt2-medium"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("no model 'gpt2-medium'"),
                                 HasSubstr("hf download openai-community/gpt2-medium"),
                                 HasSubstr("lockstep models add gpt2-medium")));
}

TEST_F(ModelsCommand, WordsThatDoNotFitAreRefused) {
  EXPECT_THAT(run({"add", "tiny"}).err, HasSubstr("name a model and its folder"));
  EXPECT_THAT(run({"show"}).err, HasSubstr("name one model"));
  EXPECT_THAT(run({"list", "tiny"}).err, HasSubstr("models show NAME"));
  EXPECT_THAT(run({"add", "a/b", folder_.path().string()}).err,
              HasSubstr("not a plain name"));
  std::filesystem::remove(folder_.path("config.json"));
  EXPECT_THAT(run({"add", "tiny", folder_.path().string()}).err,
              HasSubstr("no config.json"));
}

TEST_F(ModelsCommand, APlanHasTheSizesOfTheWeights) {
  const auto outcome = lockstep_in_process(
      {"config", "show", "--plan", "--json", "data.name=tokens", "data.dir=/none",
       "model.weights=" + folder_.path().string()},
      {{"HOME", "/none"}});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("is a GPT-2 of 1,896 parameters"));
  const auto config = json::parse(outcome.out);
  EXPECT_EQ(config["model"]["hidden"]["value"], 8);
  EXPECT_EQ(config["data"]["classes"]["value"], 11);
  EXPECT_THAT(config["model"]["hidden"]["where"].get<std::string>(),
              HasSubstr("n_embd of "));
}

}  // namespace
}  // namespace lockstep
