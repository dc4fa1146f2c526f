// A checkpoint of ours as a folder that Weights reads back.
#include "lockstep/hf/export.h"

#include "lockstep/config/load.h"
#include "lockstep/hf/weights.h"
#include "tests/hf/support/gpt2_folder.h"
#include "tests/storage/support/small_checkpoint.h"

namespace lockstep::hf {
namespace {

using test::tiny_gpt2;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// A checkpoint of a tiny gpt whose vocabulary is filled up to 16.
class HfExport : public testing::Test {
 protected:
  void save(std::int64_t rows = 16) {
    std::vector<test::SmallTensor> tensors;
    float first = 1;
    for (auto tensor : tensors_of(tiny_gpt2())) {
      if (tensor.name == kEmbedding) tensor.shape[0] = rows;
      const auto count = static_cast<std::size_t>(*storage::num_elements(tensor.shape));
      tensors.push_back({"model." + tensor.name,
                         "F32",
                         tensor.shape,
                         {},
                         test::numbers(count, first)});
      first += 1000;
    }
    tensors_ = tensors;
    auto& files = storage::FileSystem::real();
    const auto partial = storage::begin_save(files, path("checkpoints"), 1);
    std::vector<storage::WrittenFile> written;
    for (int rank = 0; rank < 2; ++rank) {
      written.push_back(test::write_rank(files, partial, tensors, rank, 2));
    }
    storage::publish(files, path("checkpoints"),
                     {test::small_head({.step = 1}), written});
  }

  config::Config config_of(const std::string& pad) const {
    const std::vector<config::Override> knobs = {
        {"model.name", "gpt"},  {"model.hidden", "8"},        {"model.layers", "2"},
        {"model.heads", "2"},   {"model.dropout", "0.2"},     {"data.name", "tokens"},
        {"data.dir", "/none"},  {"data.classes", "11"},       {"data.sequence", "6"},
        {"model.context", "6"}, {"model.pad_vocabulary", pad}};
    return config::defaults(knobs, {}).config;
  }

  Exported run(const config::Config& config, const Path& tokenizer = {}) const {
    const storage::Reader reader(path("checkpoints/step_1"));
    Export job{
        .reader = reader, .sources = {}, .config = config, .tokenizer = tokenizer};
    for (const auto& tensor : tensors_) {
      job.sources[tensor.name.substr(6)] = tensor.name;
    }
    std::filesystem::create_directories(path("out"));
    return export_gpt2(job, path("out"));
  }

  Path path(const std::string& name) const { return folder_.path() / name; }

  files::TemporaryDirectory folder_;
  std::vector<test::SmallTensor> tensors_;
};

TEST_F(HfExport, IsReadBackToTheBitWithoutTheRowsThatFillUp) {
  save();
  const auto exported = run(config_of("16"));
  EXPECT_EQ(exported.tensors.size(), tensors_.size());
  for (const auto& tensor : exported.tensors) {
    EXPECT_TRUE(tensor.name.starts_with(kPrefix)) << tensor.name;
  }
  const Weights back(path("out"));
  back.check({});
  EXPECT_EQ(back.model().vocabulary, 11);
  EXPECT_EQ(back.model().residual_dropout, 0.2);
  for (std::size_t i = 0; i < back.tensors().size(); ++i) {
    const auto& [name, dtype, shape] = back.tensors()[i];
    std::string got(static_cast<std::size_t>(*storage::num_elements(shape)) * 4, '\0');
    back.read(i, std::as_writable_bytes(std::span(got)));
    for (const auto& tensor : tensors_) {
      if (tensor.name != "model." + name) continue;
      EXPECT_TRUE(tensor.bytes.starts_with(got)) << name;
      EXPECT_EQ(name == kEmbedding, tensor.bytes.size() != got.size()) << name;
    }
  }
}

TEST_F(HfExport, TheFilesOfATokenizerGoWithIt) {
  save();
  test::Gpt2Folder tokenizer;
  tokenizer.write_config("eos_token_id", "10");
  for (const auto* name : {"vocab.json", "merges.txt"}) {
    test::write_file(tokenizer.path(name), name);
  }
  EXPECT_THAT(run(config_of("16"), tokenizer.path()).tokenizer_files,
              ElementsAre("vocab.json", "merges.txt"));
  EXPECT_EQ(test::read_file(path("out/vocab.json")), "vocab.json");
  EXPECT_EQ(read_gpt2(path("out")).last_token, 10);
}

TEST_F(HfExport, WhatIsNoGptOfThisConfigIsRefused) {
  save(24);
  EXPECT_THAT(test::error_text(Fault::config, [&] { run(config_of("16")); }),
              AllOf(HasSubstr("24 rows"), HasSubstr("gives 16")));
  auto config = config_of("1");
  EXPECT_EQ(run(config).tensors.size(), tensors_.size());  // 24 tokens
  config.model.layers = 3;
  EXPECT_THAT(test::error_text(Fault::config, [&] { run(config); }),
              HasSubstr("no 'h.2.ln_1.weight'"));
  config.model.layers = 1;
  EXPECT_THAT(test::error_text(Fault::config, [&] { run(config); }),
              HasSubstr("28 tensors, a gpt of 1 blocks has 16"));
}

}  // namespace
}  // namespace lockstep::hf
