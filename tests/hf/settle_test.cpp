#include "lockstep/hf/settle.h"

#include "lockstep/hf/model_folders.h"
#include "tests/hf/support/gpt2_folder.h"

namespace lockstep::hf {
namespace {

using config::Origin;
using test::Gpt2Folder;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

config::Loaded recipe(const Path& weights, std::vector<std::string> words) {
  words.push_back("model.weights=" + weights.string());
  std::vector<config::Override> overrides;
  for (const auto& word : words) overrides.push_back(config::parse_override(word));
  return config::defaults(overrides, {});
}

const std::vector<std::string> kTokens = {"data.name=tokens", "data.dir=/tokens"};

std::vector<std::string> with_tokens(std::vector<std::string> words) {
  words.insert(words.end(), kTokens.begin(), kTokens.end());
  return words;
}

TEST(Settle, SizesThatNobodySetAreThoseOfTheFile) {
  Gpt2Folder folder;
  auto loaded = recipe(folder.path(), kTokens);
  const auto said = settle(loaded, "");
  const auto& [model, data] = std::tie(loaded.config.model, loaded.config.data);
  EXPECT_EQ(model.name, "gpt");
  EXPECT_EQ(model.hidden, 8);
  EXPECT_EQ(model.layers, 2);
  EXPECT_EQ(model.heads, 2);
  EXPECT_EQ(model.context, 6);
  EXPECT_EQ(model.dropout, 0.1);
  EXPECT_EQ(data.classes, 11);
  EXPECT_EQ(data.sequence, 6);  // its default is longer than the context
  EXPECT_EQ(loaded.sources.at("model.hidden").origin, Origin::planner);
  EXPECT_THAT(loaded.sources.at("model.hidden").where, HasSubstr("n_embd of "));
  ASSERT_EQ(said.size(), 1U);
  EXPECT_THAT(said[0],
              AllOf(HasSubstr("1,896 parameters"), HasSubstr("dropout 0.1 as")));
  check_settled(loaded.config);
  settle(loaded, "");  // a second time changes nothing
  EXPECT_EQ(loaded.config.model.hidden, 8);
}

TEST(Settle, WhatWasSetStays) {
  Gpt2Folder folder;
  auto loaded =
      recipe(folder.path(), with_tokens({"model.name=gpt", "model.hidden=8",
                                         "model.dropout=0.3", "data.sequence=4"}));
  EXPECT_THAT(
      settle(loaded, ""),
      ElementsAre(HasSubstr("dropout 0.3 as model.dropout says (embd_pdrop=0.1, "
                            "attn_pdrop=0.1, resid_pdrop=0.1 there)")));
  EXPECT_EQ(loaded.config.data.sequence, 4);
  EXPECT_EQ(loaded.sources.at("model.hidden").origin, Origin::override_);
}

TEST(Settle, AContradictionIsRefusedWithBothNumbersFileAndKnob) {
  Gpt2Folder folder;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"model.hidden=16", "model.hidden: 16, but "},
      {"model.layers=3", "n_layer=2"},
      {"model.heads=4", "n_head=2"},
      {"model.context=5", "n_positions=6"},
      {"data.classes=64", "data.classes: 64, but "},
      {"data.sequence=7", "data.sequence: 7 tokens, but "},
      {"model.name=mlp", "model.name: 'mlp', but "},
      {"model.size=gpt2", "model.hidden: 768, but "}};
  for (const auto& [word, says] : cases) {
    std::vector<std::string> words = {word};
    if (word == "model.size=gpt2") words.push_back("model.name=gpt");
    if (word == "model.context=5") {
      words.push_back("model.name=gpt");
      words.push_back("data.sequence=5");
    }
    auto loaded = recipe(folder.path(), with_tokens(words));
    EXPECT_THAT(test::error_text(Fault::config, [&] { settle(loaded, ""); }),
                AllOf(HasSubstr(says), HasSubstr("config.json")))
        << word;
  }
}

TEST(Settle, WhoeverBuildsAModelIsToldOfAContradiction) {
  Gpt2Folder folder;
  auto loaded = recipe(folder.path(), kTokens);
  settle(loaded, "");
  loaded.config.model.heads = 4;  // no shape shows it
  EXPECT_THAT(test::error_text(Fault::config, [&] { check_settled(loaded.config); }),
              AllOf(HasSubstr("model.heads: 4"), HasSubstr("n_head=2")));
}

TEST(Settle, ThreeDropoutsAreNotMadeOneInSilence) {
  Gpt2Folder folder;
  folder.write_config("attn_pdrop", "0.2");
  auto loaded = recipe(folder.path(), kTokens);
  EXPECT_THAT(test::error_text(Fault::config, [&] { settle(loaded, ""); }),
              AllOf(HasSubstr("model.dropout: "), HasSubstr("attn_pdrop=0.2")));
  auto chosen = recipe(folder.path(), with_tokens({"model.dropout=0.1"}));
  EXPECT_THAT(settle(chosen, ""), ElementsAre(HasSubstr("attn_pdrop=0.2")));
}

TEST(Settle, ANameBecomesTheFolderOfTheModel) {
  Gpt2Folder folder;
  const files::TemporaryDirectory models;
  add_model(models.path(), {"tiny", folder.path(), Adding::copy});
  auto loaded = recipe("tiny", kTokens);
  settle(loaded, models.path());
  EXPECT_EQ(loaded.config.model.weights, (models.path() / "tiny").string());
  auto other = recipe("gpt2", kTokens);
  EXPECT_THAT(
      test::error_text(Fault::config, [&] { settle(other, models.path()); }),
      AllOf(HasSubstr("no file or folder 'gpt2' here"), HasSubstr("which has tiny"),
            HasSubstr("hf download openai-community/gpt2 --local-dir gpt2"),
            HasSubstr("lockstep models add gpt2 gpt2")));
  auto path = recipe("no/such.safetensors", {});
  EXPECT_THAT(test::error_text(Fault::config, [&] { settle(path, models.path()); }),
              HasSubstr("there is no file or folder 'no/such.safetensors'"));
}

TEST(Settle, AFileOutOfAFolderIsToldOfItsFolderInOneLine) {
  const auto problem = [](const Gpt2Folder& folder) {
    auto loaded = recipe(folder.path("model.safetensors"), kTokens);
    return test::error_text(Fault::config, [&] { settle(loaded, ""); });
  };
  for (const bool prefixed : {true, false}) {
    const Gpt2Folder folder(test::tiny_gpt2(), prefixed);
    EXPECT_THAT(problem(folder),
                AllOf(HasSubstr("out of a folder of Hugging Face"),
                      testing::EndsWith("model.weights=" + folder.path().string()),
                      testing::Not(HasSubstr("\n"))));
    std::filesystem::remove(folder.path("config.json"));
    EXPECT_THAT(problem(folder), HasSubstr("copy config.json beside it"));
  }
}

TEST(Settle, AFileOfOursIsTakenAsItIs) {
  Gpt2Folder folder;
  std::vector<test::FileTensor> ours;
  for (const auto& tensor : tensors_of(folder.model())) {
    ours.push_back({tensor.name, tensor.shape, 0});
  }
  folder.write_shard("ours.safetensors", ours);
  auto loaded = recipe(folder.path("ours.safetensors"), kTokens);
  EXPECT_THAT(settle(loaded, ""), IsEmpty());
}

TEST(Settle, AdaptersAreNoModel) {
  Gpt2Folder folder;
  std::filesystem::remove(folder.path("config.json"));
  test::write_file(folder.path("adapter_config.json"), "{}");
  auto loaded = recipe(folder.path(), kTokens);
  EXPECT_THAT(test::error_text(Fault::config, [&] { settle(loaded, ""); }),
              HasSubstr("name it as lora.weights"));
}

TEST(Settle, PaddingNeedsAVocabulary) {
  auto loaded = recipe("", with_tokens({"model.name=gpt", "model.pad_vocabulary=64"}));
  EXPECT_THAT(test::error_text(Fault::config, [&] { settle(loaded, ""); }),
              AllOf(HasSubstr("model.pad_vocabulary: 64"), HasSubstr("data.classes")));
  auto known = recipe("", with_tokens({"model.name=gpt", "model.pad_vocabulary=64",
                                       "data.classes=50257"}));
  EXPECT_THAT(settle(known, ""), IsEmpty());
}

}  // namespace
}  // namespace lockstep::hf
