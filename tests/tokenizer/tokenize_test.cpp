// From texts to token files.
#include "lockstep/tokenizer/tokenize.h"

#include <cstring>

#include "lockstep/base/files.h"
#include "tests/tokenizer/support/small.h"

namespace lockstep::tokenizer {
namespace {

using test::error_text;
using test::kSmallText;
using test::small_tokenizer;
using test::write_file;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Tokenize : public ::testing::Test {
 protected:
  test::Path path(const std::string& name) const { return folder_.path() / name; }

  void add(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(path(name).parent_path());
    write_file(path(name), text);
  }

  TokenizeRequest request(const std::string& input) const {
    return {.inputs = {path(input)}, .output = path("out/train.bin")};
  }

  TokenizeResult run(const TokenizeRequest& request) const {
    return tokenize(small_tokenizer(), request);
  }

  // The text of a token file, with a bar for <|endoftext|>.
  std::string text_in(const std::string& name) const {
    const auto bytes = test::read_file(path(name)).substr(1024);
    std::vector<std::uint16_t> tokens(bytes.size() / 2);
    std::memcpy(tokens.data(), bytes.data(), bytes.size());
    std::string text;
    const auto tokenizer = small_tokenizer();
    for (const auto token : tokens) {
      text += token == tokenizer.end_of_text() ? "|" : tokenizer.token_bytes(token);
    }
    return text;
  }

  std::string refusal(const TokenizeRequest& request, Fault fault) const {
    const auto text = error_text(fault, [&] { run(request); });
    EXPECT_FALSE(std::filesystem::exists(path("out/train.bin")));
    return text;
  }

  files::TemporaryDirectory folder_;
};

TEST_F(Tokenize, EveryFileIsADocument) {
  add("in/b.txt", "second");
  add("in/a.txt", "first\n");
  add("in/deep/er.jsonl",
      "\xEF\xBB\xBF{\"text\": \"third\"}\n\n  \n{\"text\":\"4\\u00e9\"}\n");
  add("in/other.md", "not this");
  add("in/empty.txt", "");
  const auto result = run(request("in"));
  EXPECT_EQ(text_in("out/train.bin"), "|first\n|second|third|4é");
  EXPECT_EQ(result.documents, 4);
  EXPECT_EQ(result.empty, 1);
  EXPECT_THAT(result.files, ElementsAre(path("out/train.bin")));
}

TEST_F(Tokenize, EveryTenthDocumentIsHeldOut) {
  std::string lines;
  for (int i = 0; i < 20; ++i) lines += "{\"text\":\"" + std::to_string(i) + " \"}\n";
  add("x.jsonl", lines);
  auto wanted = request("x.jsonl");
  wanted.val_fraction = 0.1;
  const auto result = run(wanted);
  EXPECT_EQ(text_in("out/val.bin"), "|9 |19 ");
  EXPECT_EQ(result.val_documents, 2);
  EXPECT_EQ(result.documents, 20);
  EXPECT_EQ(text_in("out/train.bin").substr(0, 9), "|0 |1 |2 ");
}

TEST_F(Tokenize, OfOneTextTheEndIsHeldOut) {
  add("x.txt", "one two three four five six seven eight nine ten");
  auto wanted = request("x.txt");
  wanted.val_fraction = 0.25;
  run(wanted);
  EXPECT_EQ(text_in("out/train.bin"), "|one two three four five six seven eight");
  EXPECT_EQ(text_in("out/val.bin"), "| nine ten");
}

TEST_F(Tokenize, ThreadsAndBatchesDoNotChangeTheFile) {
  std::string text;
  while (text.size() < 20'000'000) text += kSmallText;  // more than a batch
  add("x.txt", text);
  auto wanted = request("x.txt");
  int calls = 0;
  wanted.progress = [&](const TokenizeProgress& progress) {
    ++calls;
    EXPECT_LE(progress.bytes_done, progress.bytes_total);
  };
  run(wanted);
  EXPECT_GT(calls, 1);
  const auto one = test::read_file(path("out/train.bin"));
  EXPECT_EQ(text_in("out/train.bin"), "|" + text);
  wanted.threads = 3;
  run(wanted);
  EXPECT_EQ(test::read_file(path("out/train.bin")), one);
}

TEST_F(Tokenize, ABadLineIsNamed) {
  add("x.jsonl", "{\"text\":\"good\"}\n\n{\"text\":\"bad}\n");
  EXPECT_THAT(refusal(request("x.jsonl"), Fault::io),
              HasSubstr("x.jsonl:3: it is not JSON from byte"));
  add("x.jsonl", "[1]\n");
  EXPECT_THAT(refusal(request("x.jsonl"), Fault::io),
              HasSubstr("x.jsonl:1: the line is not a JSON object but array"));
  add("x.jsonl", "{\"body\":\"a\"}\n");
  EXPECT_THAT(refusal(request("x.jsonl"), Fault::io),
              HasSubstr("x.jsonl:1: there is no field 'text'; --field names"));
  add("x.jsonl", "{\"text\":7}\n");
  EXPECT_THAT(refusal(request("x.jsonl"), Fault::io),
              HasSubstr("x.jsonl:1: the field 'text' is number, not a text"));
}

TEST_F(Tokenize, SpecialTokensInTextsAreRefusedWithTheirPlace) {
  add("x.jsonl", "{\"text\":\"a\"}\n{\"text\":\"<|endoftext|>\"}\n");
  EXPECT_THAT(refusal(request("x.jsonl"), Fault::config),
              HasSubstr("x.jsonl:2: the text contains the special token"));
  auto wanted = request("x.jsonl");
  wanted.special = Special::as_text;
  run(wanted);
  EXPECT_EQ(text_in("out/train.bin"), "|a|<|endoftext|>");
}

TEST_F(Tokenize, NothingToReadIsRefused) {
  add("x.txt", "");
  EXPECT_THAT(refusal(request("x.txt"), Fault::config),
              HasSubstr("x.txt' has no text"));
  add("x.jsonl", "{\"text\":\"\"}\n");
  EXPECT_THAT(refusal(request("x.jsonl"), Fault::config), HasSubstr("has no text"));
  add("in/readme.md", "x");
  EXPECT_THAT(refusal(request("in"), Fault::config),
              HasSubstr("has no .txt or .jsonl"));
  EXPECT_THAT(refusal(request("absent"), Fault::config), HasSubstr("there is no '"));
  add("y.jsonl", "{\"text\":\"a\"}\n");
  auto wanted = request("y.jsonl");
  wanted.val_fraction = 0.5;
  EXPECT_THAT(refusal(wanted, Fault::config), HasSubstr("0.5 of 1 documents is none"));
}

TEST_F(Tokenize, OneTokenIsEnough) {
  add("x.txt", "t");
  EXPECT_EQ(run(request("x.txt")).tokens, 2);
  EXPECT_EQ(text_in("out/train.bin"), "|t");
}

TEST(ValPath, IsFoundByTheDataSet) {
  EXPECT_EQ(val_path("a/train.bin"), "a/val.bin");
  EXPECT_EQ(val_path("a/books_train_v2.bin"), "a/books_val_v2.bin");
  EXPECT_EQ(val_path("corpus.bin"), "corpus_val.bin");
}

}  // namespace
}  // namespace lockstep::tokenizer
