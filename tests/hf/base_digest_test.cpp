#include "lockstep/hf/base_digest.h"

#include "tests/hf/support/gpt2_folder.h"

namespace lockstep::hf {
namespace {

using test::Gpt2Folder;
using testing::AllOf;
using testing::HasSubstr;

TEST(BaseDigest, CountsTheWeightsAndNotTheirFiles) {
  Gpt2Folder folder;
  const auto digest = digest_of_weights(folder.path());
  EXPECT_EQ(digest_of_weights(Gpt2Folder(test::tiny_gpt2(), false).path()), digest)
      << "names without the prefix";
  folder.write_shards();
  EXPECT_EQ(digest_of_weights(folder.path()), digest) << "shards";
  folder.tensor("transformer.ln_f.bias").first += 1;
  folder.write();
  std::filesystem::remove(folder.path("model.safetensors.index.json"));
  EXPECT_NE(digest_of_weights(folder.path()), digest) << "another number";
}

config::Config with_adapters(const Path& weights) {
  config::Config config;
  config.lora.rank = 2;
  config.model.weights = weights.string();
  return config;
}

TEST(BaseDigest, OtherWeightsUnderAdaptersAreRefusedWithBothDigests) {
  Gpt2Folder folder;
  const auto digest = digest_of_weights(folder.path());
  storage::Manifest checkpoint;
  checkpoint.state = str("{\"", kBaseDigest, "\": \"", digest, "\"}");
  EXPECT_NO_THROW(check_base("who: ", checkpoint, with_adapters(folder.path())));
  folder.tensor("transformer.wte.weight").first += 1;
  folder.write();
  EXPECT_THAT(
      test::error_text(
          Fault::config,
          [&] { check_base("who: ", checkpoint, with_adapters(folder.path())); }),
      AllOf(testing::StartsWith("who: the adapters"), HasSubstr(digest),
            HasSubstr(digest_of_weights(folder.path())),
            HasSubstr(folder.path().string())));
  checkpoint.state = "{}";  // of a version without the digest
  EXPECT_NO_THROW(check_base("who: ", checkpoint, with_adapters(folder.path())));
}

}  // namespace
}  // namespace lockstep::hf
