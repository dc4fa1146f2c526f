#include "lockstep/hf/gpt2.h"

#include "lockstep/config/gpt_sizes.h"
#include "lockstep/hf/model_folders.h"
#include "tests/hf/support/gpt2_folder.h"

namespace lockstep::hf {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// What the original gpt2 says, cut down to what counts, and with other names.
constexpr const char* kOther =
    R"({"model_type": "gpt2", "vocab_size": 50257, "n_ctx": 1024, "hidden_size": 768,
        "num_hidden_layers": 12, "num_attention_heads": 12, "n_inner": 3072,
        "attn_pdrop": 0.2, "task_specific_params": {"text-generation": {}}})";

TEST(Gpt2Config, ReadsOtherNamesAndTakesTheirDefaults) {
  const auto model = gpt2_from_json(kOther, "config.json");
  EXPECT_EQ(model.vocabulary, 50257);
  EXPECT_EQ(model.context, 1024);
  EXPECT_EQ(model.hidden, 768);
  EXPECT_EQ(model.layers, 12);
  EXPECT_EQ(model.heads, 12);
  EXPECT_EQ(model.attention_dropout, 0.2);
  EXPECT_EQ(model.residual_dropout, 0.1);
  EXPECT_TRUE(model.is_tied);
}

TEST(Gpt2Config, TextsEndAsTransformersEndsThem) {
  test::Gpt2Folder folder;
  EXPECT_THAT(end_tokens(folder.path()), testing::IsEmpty());
  folder.write_config("eos_token_id", "7");
  EXPECT_THAT(end_tokens(folder.path()), testing::ElementsAre(7));
  const auto file = folder.path("generation_config.json");
  test::write_file(file, R"({"eos_token_id": [3, 4]})");
  EXPECT_THAT(end_tokens(folder.path()), testing::ElementsAre(3, 4));
  test::write_file(file, R"({"eos_token_id": null})");
  EXPECT_THAT(end_tokens(folder.path()), testing::ElementsAre(7));
  test::write_file(file, R"({"eos_token_id": "end"})");
  EXPECT_THAT(test::error_text(Fault::config, [&] { end_tokens(folder.path()); }),
              HasSubstr("generation_config.json: "));
}

TEST(Gpt2Config, WhatIsWrittenReadsBack) {
  auto model = test::tiny_gpt2();
  model.residual_dropout = 0.25;
  model.last_token = 7;
  const auto back = gpt2_from_json(config_json(model, "F32"), "config.json");
  EXPECT_EQ(back.vocabulary, model.vocabulary);
  EXPECT_EQ(back.context, model.context);
  EXPECT_EQ(back.hidden, model.hidden);
  EXPECT_EQ(back.layers, model.layers);
  EXPECT_EQ(back.heads, model.heads);
  EXPECT_EQ(back.residual_dropout, 0.25);
  EXPECT_EQ(back.last_token, 7);
  EXPECT_EQ(back.first_token, std::nullopt);
  EXPECT_THAT(generation_config_json(model), HasSubstr("\"eos_token_id\": 7"));
}

// No memory is taken for the weights.
TEST(Gpt2Config, SizesByNameHaveTheParametersOfThePapers) {
  const std::map<std::string_view, std::int64_t> counts = {{"gpt2", 124'439'808},
                                                           {"gpt2-medium", 354'823'168},
                                                           {"gpt2-large", 774'030'080},
                                                           {"gpt2-xl", 1'557'611'200}};
  for (const auto& size : config::kGptSizes) {
    const Gpt2 model{.vocabulary = 50257,
                     .context = 1024,
                     .hidden = size.hidden,
                     .layers = size.layers,
                     .heads = size.heads};
    EXPECT_EQ(num_parameters(model), counts.at(size.hf_name)) << size.name;
  }
}

struct BadConfig {
  std::string field, value, says;
};

TEST(Gpt2Config, WhatOurGptDoesNotComputeIsRefusedInOneLine) {
  test::Gpt2Folder folder;
  const std::vector<BadConfig> cases = {
      {"model_type", "\"llama\"", "only \"gpt2\" can be loaded"},
      {"model_type", "null", "does not say model_type"},
      {"model_type", "\"lockstep\"", "the model.safetensors beside it"},
      {"activation_function", "\"relu\"", "has gelu_new only"},
      {"n_inner", "31", "4 * n_embd = 32"},
      {"layer_norm_epsilon", "1e-6", "1e-05 only"},
      {"scale_attn_by_inverse_layer_idx", "true", "false only"},
      {"add_cross_attention", "true", "false only"},
      {"n_head", "3", "not a multiple of n_head=3"},
      {"n_layer", "0", "not a whole number from 1"},
      {"n_layer", "1e99", "not a whole number from 1"},
      {"n_layer", "18446744073709551615", "not a whole number from 1"},
      {"n_layer", "123456789", "not a whole number from 1 to 1000"},
      {"n_layer", "null", "does not say n_layer"},
      {"n_embd", "\"8\"", "not a whole number"},
      {"resid_pdrop", "1.5", "not a share"},
      {"tie_word_embeddings", "1", "neither true nor false"},
  };
  for (const auto& [field, value, says] : cases) {
    folder.write_config(field, value);
    const auto text =
        test::error_text(Fault::config, [&] { read_gpt2(folder.path()); });
    EXPECT_THAT(text, AllOf(HasSubstr("config.json: "), HasSubstr(says))) << field;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
}

TEST(Gpt2Config, AMissingOrTornFileSaysWhatToDo) {
  test::Gpt2Folder folder;
  for (const auto* content : {"", "{", "[]", "{\"model_type\": \"gp"}) {
    test::write_file(folder.path("config.json"), content);
    EXPECT_THAT(test::error_text(Fault::config, [&] { read_gpt2(folder.path()); }),
                HasSubstr("config.json: "))
        << content;
  }
  std::filesystem::remove(folder.path("config.json"));
  EXPECT_THAT(test::error_text(Fault::config, [&] { read_gpt2(folder.path()); }),
              AllOf(HasSubstr(folder.path().string()), HasSubstr("no config.json"),
                    HasSubstr("name the folder of a Hugging Face model")));
}

}  // namespace
}  // namespace lockstep::hf
