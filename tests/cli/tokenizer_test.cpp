// `lockstep tokenizer` and `lockstep tokenize` as users type them.
#include <nlohmann/json.hpp>

#include "tests/cli/rig.h"

namespace lockstep {
namespace {

using nlohmann::json;
using test::lockstep_in_process;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TokenizerCommand : public ::testing::Test {
 protected:
  TokenizerCommand() {
    test::write_file(path("a.txt"), "the theme of the thesis is the other there\n");
    const auto trained = run({"tokenizer", "train", path("a.txt"), "-o", path("mine"),
                              "--vocab-size", "270", "--json"});
    EXPECT_EQ(trained.status, 0) << trained.err;
    trained_ = json::parse(trained.out);
  }

  static test::Outcome run(const std::vector<std::string>& words) {
    return lockstep_in_process(words);
  }
  std::string path(const std::string& name) const { return folder_.path() / name; }

  // The one line of a refusal.
  std::string refusal(const std::vector<std::string>& words, int status) const {
    const auto outcome = run(words);
    EXPECT_EQ(outcome.status, status);
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1);
    return outcome.err;
  }

  files::TemporaryDirectory folder_;
  json trained_;
};

TEST_F(TokenizerCommand, TrainWritesTheFilesOfATokenizer) {
  EXPECT_EQ(trained_.at("tokens"), 270);
  EXPECT_EQ(trained_.at("merges"), 13);
  EXPECT_EQ(trained_.at("bytes"), 43);
  EXPECT_THAT(test::names_in(path("mine")),
              ElementsAre("merges.txt", "tokenizer.json", "tokenizer_config.json",
                          "vocab.json"));
  const auto outcome = run({"tokenizer", "train", path("a.txt"), "-o", path("more"),
                            "--vocab-size", "5000"});
  EXPECT_THAT(outcome.out, HasSubstr("tokens from 0.0 MB of text"));
  EXPECT_THAT(outcome.err, HasSubstr("no more pairs"));
}

TEST_F(TokenizerCommand, EncodeAndDecodeAreInverse) {
  const auto tokens = run({"tokenizer", "encode", path("mine"), "the theme"});
  EXPECT_EQ(tokens.status, 0) << tokens.err;
  test::write_file(path("tokens"), tokens.out);
  EXPECT_EQ(run({"tokenizer", "decode", path("mine"), "--file", path("tokens")}).out,
            "the theme");
  const auto report = json::parse(
      run({"tokenizer", "encode", path("mine"), "--file", path("a.txt"), "--json"})
          .out);
  EXPECT_EQ(report.at("count"), report.at("tokens").size());
  EXPECT_EQ(run({"tokenizer", "decode", path("mine"), "1", "2,3"}).out, "!\"#");
}

TEST_F(TokenizerCommand, ShowNamesTheSpecialTokens) {
  const auto outcome = run({"tokenizer", "show", path("mine")});
  EXPECT_THAT(outcome.out, HasSubstr("tokens   270 (byte-level BPE"));
  EXPECT_THAT(outcome.out, HasSubstr("special  <|endoftext|> = 0\n"));
  const auto report =
      json::parse(run({"tokenizer", "show", path("mine"), "--json"}).out);
  EXPECT_EQ(report.at("added")[0].at("text"), "<|endoftext|>");
}

TEST_F(TokenizerCommand, ConvertWritesAllFormats) {
  EXPECT_EQ(run({"tokenizer", "convert", path("mine/vocab.json"), "-o", path("x")}).out,
            path("x") + "\n");
  EXPECT_EQ(test::read_file(path("x/tokenizer.json")),
            test::read_file(path("mine/tokenizer.json")));
}

TEST_F(TokenizerCommand, TokenizeSaysWhatItWrote) {
  const auto outcome = run({"tokenize", path("a.txt"), "-o", path("train.bin"),
                            "--tokenizer", path("mine"), "--val-fraction", "0.3"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("train.bin "));
  EXPECT_THAT(outcome.out, HasSubstr("val.bin "));
  EXPECT_THAT(outcome.out, HasSubstr(" bytes per token, "));
  const auto report =
      json::parse(run({"tokenize", path("a.txt"), "-o", path("train.bin"),
                       "--tokenizer", path("mine"), "--json"})
                      .out);
  EXPECT_EQ(report.at("documents"), 1);
  EXPECT_EQ(report.at("bytes"), 43);
  EXPECT_EQ(report.at("files")[0], path("train.bin"));
}

TEST_F(TokenizerCommand, BadInputIsOneLine) {
  const auto mine = path("mine"), out = path("train.bin");
  test::write_file(path("bad.jsonl"), "{\"text\": \"a\"}\n{\"text\": \n");
  EXPECT_THAT(
      refusal({"tokenize", path("bad.jsonl"), "-o", out, "--tokenizer", mine}, 3),
      HasSubstr("bad.jsonl:2: it is not JSON from byte"));
  test::write_file(path("empty.txt"), "");
  EXPECT_THAT(
      refusal({"tokenize", path("empty.txt"), "-o", out, "--tokenizer", mine}, 2),
      HasSubstr("empty.txt' has no text"));
  EXPECT_THAT(refusal({"tokenize", path("a.txt"), "-o", out}, 2),
              HasSubstr("needs --tokenizer FOLDER"));
  EXPECT_THAT(refusal({"tokenize", path("a.txt"), "-o", out, "--tokenizer", mine,
                       "--val-fraction", "2"},
                      2),
              HasSubstr("--val-fraction: '2' is not a number between 0 and 1"));
  EXPECT_THAT(refusal({"tokenizer", "encode", mine, "<|endoftext|>"}, 2),
              HasSubstr("contains the special token"));
  EXPECT_THAT(refusal({"tokenizer", "decode", mine, "12x"}, 2),
              HasSubstr("'12x' is not a token"));
  EXPECT_THAT(refusal({"tokenizer", "train", path("a.txt"), "-o", mine}, 2),
              HasSubstr("--vocab-size N"));
  EXPECT_THAT(refusal({"tokenizer", "show", path("nowhere")}, 2),
              HasSubstr("there is no '"));
}

}  // namespace
}  // namespace lockstep
