#include "lockstep/tokenizer/token_file.h"

#include <cstring>

#include "tests/support/support.h"

namespace lockstep::tokenizer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

template <typename T>
std::vector<T> numbers_in(const std::string& bytes) {
  std::vector<T> numbers(bytes.size() / sizeof(T));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

class TokenFile : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.path() / name; }
  files::TemporaryDirectory folder_;
  const std::vector<Token> tokens_ = {1, 2, 65535, 7, 8};
};

TEST_F(TokenFile, HasTheHeaderOfLlmC) {
  TokenWriter writer({.path = path("new/train.bin"), .vocabulary_size = 65536});
  writer.write(tokens_);
  writer.write(tokens_);
  EXPECT_EQ(writer.count(), 10);
  writer.publish();
  const auto bytes = test::read_file(path("new/train.bin"));
  ASSERT_EQ(bytes.size(), 1024U + 20);
  const auto header = numbers_in<std::int32_t>(bytes.substr(0, 12));
  EXPECT_THAT(header, ElementsAre(20240520, 1, 10));
  EXPECT_THAT(numbers_in<std::uint16_t>(bytes.substr(1024, 10)),
              ElementsAre(1, 2, 65535, 7, 8));
}

TEST_F(TokenFile, ALargeVocabularyHasWideTokens) {
  TokenWriter writer({.path = path("train.bin"), .vocabulary_size = 65537});
  writer.write(std::vector<Token>{65536});
  writer.publish();
  const auto bytes = test::read_file(path("train.bin"));
  EXPECT_THAT(numbers_in<std::int32_t>(bytes.substr(0, 12)),
              ElementsAre(20240801, 7, 1));
  EXPECT_THAT(numbers_in<std::uint32_t>(bytes.substr(1024)), ElementsAre(65536U));
}

TEST_F(TokenFile, ManyTokensTakeSeveralFiles) {
  test::write_file(path("train_000003.bin"), "of an earlier run");
  test::write_file(path("train_000004.bin"), "of an earlier run");
  TokenWriter writer({path("train.bin"), 100, 2});
  writer.write(tokens_);
  EXPECT_THAT(writer.publish(), ElementsAre(path("train.bin"), path("train_000001.bin"),
                                            path("train_000002.bin")));
  EXPECT_THAT(test::names_in(folder_.path()),
              ElementsAre("train.bin", "train_000001.bin", "train_000002.bin"));
  const auto last = numbers_in<std::int32_t>(test::read_file(path("train_000002.bin")));
  EXPECT_EQ(last[2], 1);
}

TEST_F(TokenFile, WithoutPublishNothingIsLeft) {
  test::write_file(path("train.bin"), "old");
  {
    TokenWriter writer({.path = path("train.bin"), .vocabulary_size = 100});
    writer.write(tokens_);
    EXPECT_EQ(test::read_file(path("train.bin")), "old");
  }
  EXPECT_THAT(test::names_in(folder_.path()), ElementsAre("train.bin"));
}

TEST_F(TokenFile, AFullDiskIsAnErrorThatNamesTheFile) {
  const int status = test::in_child([&] {
    test::limit_file_size(2000);
    TokenWriter writer({.path = path("train.bin"), .vocabulary_size = 100});
    const auto error =
        test::error_of([&] { writer.write(std::vector<Token>(10'000)); });
    return error && std::string(error->what()).find("train.bin': File too large") !=
                        std::string::npos
               ? 0
               : 1;
  });
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace lockstep::tokenizer
