#include "lockstep/hf/weights.h"

#include "lockstep/storage/torch_file.h"
#include "tests/hf/support/gpt2_folder.h"

namespace lockstep::hf {
namespace {

using test::Gpt2Folder;
using test::tiny_gpt2;
using testing::AllOf;
using testing::HasSubstr;

std::vector<float> values_of(const Weights& weights, const std::string& name) {
  for (std::size_t i = 0; i < weights.tensors().size(); ++i) {
    if (weights.tensors()[i].name != name) continue;
    const auto count = *storage::num_elements(weights.tensors()[i].shape);
    std::vector<float> values(static_cast<std::size_t>(count));
    weights.read(i, std::as_writable_bytes(std::span(values)));
    return values;
  }
  ADD_FAILURE() << name << " is not there";
  return {};
}

// The file holds counting numbers: 0, 1, 2, ... row by row.
void expect_ours(const Gpt2Folder& folder, Gpt2Folder& made) {
  const Weights weights(folder.path());
  weights.check({});
  for (const auto& tensor : tensors_of(folder.model())) {
    const auto values = values_of(weights, tensor.name);
    const auto first = made.tensors()[0].name.starts_with(kPrefix)
                           ? made.tensor(std::string(kPrefix) + tensor.name).first
                           : made.tensor(tensor.name).first;
    const auto columns = tensor.shape.back();
    const auto rows = static_cast<std::int64_t>(values.size()) / columns;
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      const auto row = i / columns, column = i % columns;
      const auto at = is_transposed(tensor.name) ? column * rows + row : i;
      ASSERT_EQ(values[static_cast<std::size_t>(i)], first + static_cast<float>(at))
          << tensor.name << " " << row << " " << column;
    }
  }
}

TEST(HfWeights, AreOursWithAndWithoutThePrefixWholeAndInShards) {
  for (const bool prefixed : {true, false}) {
    Gpt2Folder folder(tiny_gpt2(), prefixed);
    expect_ours(folder, folder);
    folder.write_shards();
    expect_ours(folder, folder);
  }
}

TEST(HfWeights, ExactlyFourMatricesOfABlockAreTransposed) {
  int transposed = 0;
  for (const auto& tensor : tensors_of(tiny_gpt2())) {
    transposed += is_transposed(tensor.name) ? 1 : 0;
  }
  EXPECT_EQ(transposed, 4 * tiny_gpt2().layers);
  EXPECT_FALSE(is_transposed("h.x.attn.c_attn.weight"));
  EXPECT_FALSE(is_transposed("h.0.attn.c_attn.bias"));
}

TEST(HfWeights, TransposingTwiceGivesTheSameWhateverTheWidth) {
  for (const std::int64_t width : {1, 2, 4, 8}) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(37 * 71 * width));
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(i * 7 % 251);
    auto once = bytes, twice = bytes;
    transpose({bytes, 37, 71, width}, once);
    transpose({once, 71, 37, width}, twice);
    EXPECT_NE(once, bytes);
    EXPECT_EQ(twice, bytes) << width;
  }
}

TEST(HfWeights, MasksOfOldFilesAndAHeadThatIsTheEmbeddingAreLeftOut) {
  Gpt2Folder folder(tiny_gpt2(), /*prefixed=*/false);
  const auto number = folder.tensors().size();
  folder.tensors().push_back({"h.0.attn.bias", {1, 1, 6, 6}, 0});
  folder.tensors().push_back({"h.1.attn.masked_bias", {}, 0});
  folder.tensors().push_back({"lm_head.weight", {11, 8}, 0});
  folder.write();
  const Weights weights(folder.path());
  weights.check({});
  EXPECT_EQ(weights.tensors().size(), number);
}

struct BadFolder {
  std::string what;
  std::function<void(Gpt2Folder&)> break_it;
  std::vector<std::string> says;
};

std::vector<BadFolder> bad_folders() {
  const auto shards = [](Gpt2Folder& f) { f.write_shards(); };
  return {
      {"no weights",
       [](Gpt2Folder& f) { std::filesystem::remove(f.path("model.safetensors")); },
       {"no weights in it", "pytorch_model.bin", "copy them there"}},
      {"a missing tensor",
       [](Gpt2Folder& f) {
         f.tensors().erase(f.tensors().begin() + 5);
         f.write();
       },
       {"is missing", "n_layer=2", "checkpoint.allow_missing"}},
      {"a wrong shape",
       [](Gpt2Folder& f) {
         f.tensor("transformer.h.1.mlp.c_fc.weight").shape = {32, 8};
         f.write();
       },
       {"model.safetensors: 'h.1.mlp.c_fc.weight' has the shape [32, 8]",
        "config.json makes it [8, 32]"}},
      {"another model's block",
       [](Gpt2Folder& f) {
         f.tensors().push_back({"transformer.h.2.ln_1.weight", {8}, 0});
         f.write();
       },
       {"'h.2.ln_1.weight' is not a tensor", "checkpoint.ignore"}},
      {"both prefixes",
       [](Gpt2Folder& f) {
         f.tensor("transformer.wpe.weight").name = "wpe.weight";
         f.write();
       },
       {"has the prefix transformer.", "'wpe.weight' has not", "two models"}},
      {"a truncated file",
       [](Gpt2Folder& f) {
         std::filesystem::resize_file(f.path("model.safetensors"), 3000);
       },
       {"model.safetensors: ", "copy it again"}},
      {"an empty file",
       [](Gpt2Folder& f) { test::write_file(f.path("model.safetensors"), ""); },
       {"model.safetensors: ", "copy it again"}},
      {"a truncated shard",
       [=](Gpt2Folder& f) {
         shards(f);
         std::filesystem::resize_file(f.path("model-00002-of-00002.safetensors"), 2500);
       },
       {"model-00002-of-00002.safetensors: ", "copy it again"}},
      {"a missing shard",
       [=](Gpt2Folder& f) {
         shards(f);
         std::filesystem::remove(f.path("model-00002-of-00002.safetensors"));
       },
       {"index.json: it names 'model-00002-of-00002.safetensors'", "not there"}},
      {"an old shard",
       [=](Gpt2Folder& f) {
         shards(f);
         f.write_shard("model-00002-of-00002.safetensors",
                       {{"transformer.ln_f.weight", {8}, 0}});
       },
       {"model-00002-of-00002.safetensors: it lacks ", "copy it again"}},
      {"a tensor in two shards",
       [=](Gpt2Folder& f) {
         shards(f);
         f.write_shard("model-00002-of-00002.safetensors", f.tensors());
       },
       {"is in model-00001-of-00002.safetensors, too"}},
      {"an index that leads out",
       [=](Gpt2Folder& f) {
         shards(f);
         test::write_file(f.path("model.safetensors.index.json"),
                          R"({"weight_map": {"a": "../../etc/passwd"}})");
       },
       {"not the name of a file beside it"}},
      {"an index without a map",
       [=](Gpt2Folder& f) {
         shards(f);
         test::write_file(f.path("model.safetensors.index.json"), "{}");
       },
       {"index.json: ", "weight_map", "copy it again"}},
      {"a head of its own",
       [](Gpt2Folder& f) {
         f.tensors().push_back({"lm_head.weight", {11, 8}, 0.5F});
         f.write();
         f.write_config("tie_word_embeddings", "false");
       },
       {"model.safetensors: lm_head.weight is not the embedding", "is false in",
        "no head of its own"}},
      {"no head where one should be",
       [](Gpt2Folder& f) { f.write_config("tie_word_embeddings", "false"); },
       {"tie_word_embeddings is false, but lm_head.weight is not in the files"}},
  };
}

TEST(HfWeights, WhatCanNotBeLoadedIsRefusedInOneLine) {
  for (const auto& [what, break_it, says] : bad_folders()) {
    Gpt2Folder folder;
    break_it(folder);
    const auto error = test::error_of([&] { Weights(folder.path()).check({}); });
    ASSERT_TRUE(error) << what;
    const std::string text = error->what();
    EXPECT_NE(error->fault(), Fault::internal) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    for (const auto& part : says) EXPECT_THAT(text, HasSubstr(part)) << what;
  }
}

TEST(HfWeights, PatternsAllowWhatIsMissingAndWhatIsTooMuch) {
  Gpt2Folder folder;
  folder.tensors().push_back({"transformer.score.weight", {2, 8}, 0});
  folder.tensors().erase(folder.tensors().begin() + 1);  // wpe.weight
  folder.write();
  const Weights weights(folder.path());
  EXPECT_TRUE(test::error_of([&] { weights.check({}); }));
  EXPECT_TRUE(test::error_of([&] { weights.check({.allow_missing = "wpe.*"}); }));
  weights.check({.allow_missing = "wpe.*", .ignore = "score.*"});
}

// Whatever the bytes of a folder are, the answer is an Error.
TEST(HfWeights, AnyByteOfTheHeaderMayBeWrong) {
  Gpt2Folder folder;
  const auto content = test::read_file(folder.path("model.safetensors"));
  for (std::size_t i = 0; i < 1500; i += 7) {
    auto damaged = content;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x15);
    test::write_file(folder.path("model.safetensors"), damaged);
    const auto error = test::error_of([&] {
      const Weights weights(folder.path());
      weights.check({});
    });
    if (error) {
      EXPECT_NE(error->fault(), Fault::internal) << error->what();
    }
  }
}

}  // namespace
}  // namespace lockstep::hf
