// The file formats: what is written reads back, what is damaged is refused with its
// place.
#include "lockstep/tokenizer/files.h"

#include "lockstep/base/files.h"
#include "tests/tokenizer/support/small.h"

namespace lockstep::tokenizer {
namespace {

using test::base64;
using test::error_text;
using test::read_file;
using test::small_tokenizer;
using test::write_file;
using ::testing::HasSubstr;

class TokenizerFiles : public ::testing::Test {
 protected:
  TokenizerFiles() { save(small_tokenizer(), path("")); }

  test::Path path(const std::string& name) const { return folder_.path() / name; }

  void edit(const std::string& name, const std::string& from, const std::string& to) {
    auto text = read_file(path(name));
    const auto at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write_file(path(name), text.replace(at, from.size(), to));
  }

  std::string refusal(const std::string& name, Fault fault = Fault::io) const {
    return error_text(fault, [&] { Tokenizer::load(path(name)); });
  }

  files::TemporaryDirectory folder_;
};

// The vocabulary as a .tiktoken file: ranks from 0 on, without the special token.
std::string tiktoken_text(const Vocabulary& vocabulary) {
  std::string text;
  for (std::size_t id = 1; id < vocabulary.bytes.size(); ++id) {
    text += base64(vocabulary.bytes[id]) + " " + std::to_string(id - 1) + "\n";
  }
  return text;
}

void expect_same(const Tokenizer& a, const Tokenizer& b) {
  EXPECT_EQ(a.vocabulary().bytes, b.vocabulary().bytes);
  EXPECT_EQ(a.vocabulary().merges, b.vocabulary().merges);
  EXPECT_EQ(a.vocabulary().added, b.vocabulary().added);
  EXPECT_EQ(a.vocabulary().byte_tokens, b.vocabulary().byte_tokens);
  EXPECT_EQ(a.vocabulary().whole_words_first, b.vocabulary().whole_words_first);
}

TEST_F(TokenizerFiles, EveryFormatReadsBack) {
  expect_same(Tokenizer::load(path("")), small_tokenizer());
  expect_same(Tokenizer::load(path("tokenizer.json")), small_tokenizer());
  expect_same(Tokenizer::load(path("vocab.json")), small_tokenizer());
  expect_same(Tokenizer::load(path("merges.txt")), small_tokenizer());
}

TEST_F(TokenizerFiles, MergesFollowFromTiktokensRanks) {
  const auto wanted = small_tokenizer();
  write_file(path("x.tiktoken"), tiktoken_text(wanted.vocabulary()));
  const auto read = Tokenizer::load(path("x.tiktoken"));
  ASSERT_EQ(read.vocabulary().merges.size(), wanted.vocabulary().merges.size());
  for (std::size_t i = 0; i < read.vocabulary().merges.size(); ++i) {
    EXPECT_EQ(read.vocabulary().merges[i].result + 1,
              wanted.vocabulary().merges[i].result);
    EXPECT_EQ(read.vocabulary().merges[i].left + 1, wanted.vocabulary().merges[i].left);
  }
  EXPECT_EQ(read.end_of_text(), 299U);
  EXPECT_FALSE(read.vocabulary().whole_words_first);
}

TEST_F(TokenizerFiles, ATokenThatNoMergeMakesIsOnlyAWholeWord) {
  auto text = tiktoken_text(small_tokenizer().vocabulary());
  text += base64("zqzq") + " 299\n";
  write_file(path("x.tiktoken"), text);
  const auto read = Tokenizer::load(path("x.tiktoken"));
  EXPECT_TRUE(read.vocabulary().whole_words_first);
  EXPECT_EQ(read.encode("zqzq"), std::vector<Token>{299});
  EXPECT_EQ(read.encode("zqzqz").size(), 5U);
  EXPECT_EQ(read.end_of_text(), 300U);
  // Only tokenizer.json can say so.
  save(read, path(""));
  EXPECT_FALSE(std::filesystem::exists(path("vocab.json")));
  expect_same(Tokenizer::load(path("")), read);
}

TEST_F(TokenizerFiles, OldMergesAreTextsOfTwo) {
  const auto merges = merges_txt(small_tokenizer().vocabulary());
  const auto first = merges.substr(14, merges.find('\n', 14) - 14);
  const auto blank = first.find(' ');
  edit("tokenizer.json",
       "[\"" + first.substr(0, blank) + "\",\"" + first.substr(blank + 1) + "\"]",
       "\"" + first + "\"");
  expect_same(Tokenizer::load(path("tokenizer.json")), small_tokenizer());
}

TEST_F(TokenizerFiles, DamageIsRefusedWithItsLine) {
  edit("merges.txt", "t h\n", "t\n");
  EXPECT_THAT(refusal("merges.txt"), HasSubstr("merges.txt:2: 't' is not two tokens"));
  edit("merges.txt", "t\n", "t Q9\n");
  EXPECT_THAT(refusal("merges.txt"),
              HasSubstr("merges.txt:2: 'Q9' is not in the vocabulary"));
  edit("vocab.json", "\"\\\"\": 2", "\"\\\"\": 3");
  EXPECT_THAT(refusal("vocab.json"), HasSubstr("' has the id 3, which '"));
  EXPECT_THAT(refusal("vocab.json"), HasSubstr("vocab.json:"));
  edit("vocab.json", "\"\\\"\": 3", "\"\\\"\": 3 3");
  EXPECT_THAT(refusal("vocab.json"),
              HasSubstr("vocab.json:3: it is not JSON from byte"));
}

TEST_F(TokenizerFiles, DamagedIdsAreRefused) {
  edit("vocab.json", "\"\\\"\": 2", "\"\\\"\": -2");
  EXPECT_THAT(refusal("vocab.json"), HasSubstr("vocab.json:3: the id of '\"' is -2"));
  edit("vocab.json", "\": -2", "\": 2000000000");
  EXPECT_THAT(refusal("vocab.json"), HasSubstr("the id 2000000000 is far beyond the"));
  edit("vocab.json", "\"\\\"\": 2000000000,", "");
  EXPECT_THAT(refusal("vocab.json"), HasSubstr("no token for the byte 34"));
}

TEST_F(TokenizerFiles, DamagedTiktokenFilesAreRefusedWithTheirLine) {
  const auto good = tiktoken_text(small_tokenizer().vocabulary());
  const auto with = [&](const std::string& line) {
    write_file(path("x.tiktoken"), "\n" + line + "\n" + good);
    return refusal("x.tiktoken");
  };
  EXPECT_THAT(with("IQ=="), HasSubstr("x.tiktoken:2: 'IQ==' is not a token in base64"));
  EXPECT_THAT(with("I*== 5"), HasSubstr("x.tiktoken:2: 'I*== 5' is not a token"));
  EXPECT_THAT(with("enpxcQ== -1"), HasSubstr("x.tiktoken:2:"));
  EXPECT_THAT(with("IQ== 900"), HasSubstr("x.tiktoken:3: the token is that of line 2"));
  EXPECT_THAT(with("enpxcQ== 0"),
              HasSubstr("x.tiktoken:3: the rank is that of line 2"));
  EXPECT_THAT(with("enpxcQ== 99999999"), HasSubstr("far beyond"));
}

TEST_F(TokenizerFiles, OtherKindsOfTokenizersAreRefused) {
  edit("tokenizer.json", "\"add_prefix_space\": false", "\"add_prefix_space\": true");
  EXPECT_THAT(refusal("tokenizer.json", Fault::config),
              HasSubstr("\"pre_tokenizer\" is {\"add_prefix_space\":true"));
  edit("tokenizer.json", "\"normalizer\": null", "\"normalizer\": {\"type\": \"NFC\"}");
  EXPECT_THAT(
      refusal("tokenizer.json", Fault::config),
      HasSubstr("\"normalizer\" is {\"type\":\"NFC\"}; Lockstep reads byte-level"));
  save(small_tokenizer(), path(""));
  edit("tokenizer.json", "\"BPE\"", "\"Unigram\"");
  EXPECT_THAT(refusal("tokenizer.json", Fault::config),
              HasSubstr("\"model.type\" is \"Unigram\""));
  edit("tokenizer.json", "\"model\"", "\"modell\"");
  EXPECT_THAT(refusal("tokenizer.json"),
              HasSubstr("is not a tokenizer: key 'model' not found"));
}

TEST_F(TokenizerFiles, APlaceWithoutATokenizerIsRefused) {
  std::filesystem::create_directory(path("empty"));
  EXPECT_THAT(refusal("empty", Fault::config),
              HasSubstr("has no files of a tokenizer"));
  EXPECT_THAT(refusal("absent", Fault::config), HasSubstr("scripts/get_gpt2_vocab.sh"));
  write_file(path("x.txt"), "");
  EXPECT_THAT(refusal("x.txt", Fault::config),
              HasSubstr("is not a file of a tokenizer"));
  write_file(path("added_tokens.json"), "{}");
  EXPECT_THAT(refusal("vocab.json", Fault::config), HasSubstr("added_tokens.json"));
}

TEST(Letters, EveryByteHasOneAndComesBack) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(from_letters(to_letters(all)), all);
  EXPECT_EQ(to_letters(" the\n"), "ĠtheĊ");
  EXPECT_EQ(from_letters("a b"), std::nullopt);
  EXPECT_EQ(from_letters("日"), std::nullopt);
}

}  // namespace
}  // namespace lockstep::tokenizer
