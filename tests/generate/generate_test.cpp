#include "lockstep/generate/generate.h"

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "tests/generate/tiny_model.h"
#include "tests/support/byte_tokenizer.h"

namespace lockstep::generate {
namespace {

using testing::HasSubstr;

class Generation : public ::testing::Test {
 protected:
  Generation()
      : model_(test::tiny_gpt()),
        decoder_(test::weights_of(*model_)),
        words_(tokenizer::Tokenizer::load(test::write_byte_tokenizer(folder_.path()))) {
  }
  std::vector<Generated> made(const std::vector<std::string>& prompts,
                              const GenerateOptions& options) {
    return generate({decoder_, words_}, prompts, options);
  }
  std::string problem(const std::string& prompt) {
    try {
      made({prompt}, {});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  files::TemporaryDirectory folder_;
  std::shared_ptr<models::Model> model_;
  Decoder decoder_;
  tokenizer::Tokenizer words_;
};

TEST_F(Generation, ATextIsTheSameAloneAndAmongOthers) {
  const GenerateOptions options{.max_tokens = 20, .sampling = {.temperature = 0}};
  const std::vector<std::string> prompts{"In the", "A", "And it came to pass"};
  const auto together = made(prompts, options);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(together[i].tokens, made({prompts[i]}, options)[0].tokens) << prompts[i];
  }
  EXPECT_EQ(together[0].prompt_tokens, 6);
}

TEST_F(Generation, ADrawnTextFollowsFromItsSeed) {
  const GenerateOptions options{.max_tokens = 30, .sampling = {.seed = 7}};
  const auto first = made({"x"}, options)[0];
  EXPECT_EQ(first.tokens, made({"x"}, options)[0].tokens);
  EXPECT_NE(first.tokens,
            made({"x"}, {.max_tokens = 30, .sampling = {.seed = 8}})[0].tokens);
}

TEST_F(Generation, StreamedLettersAreTheText) {
  std::string streamed;
  GenerateOptions options{.max_tokens = 40, .sampling = {.seed = 3}};
  options.stream = [&](std::size_t, std::string_view letters) { streamed += letters; };
  const auto result = made({"x"}, options)[0];
  EXPECT_EQ(streamed, result.text.substr(0, streamed.size()));
  EXPECT_LE(result.text.size() - streamed.size(), 3u);
}

TEST_F(Generation, AStopWordEndsATextBeforeIt) {
  const GenerateOptions free{.max_tokens = 40, .sampling = {.temperature = 0}};
  const auto whole = made({"x"}, free)[0].text;
  ASSERT_GT(whole.size(), 12u);
  auto options = free;
  options.stop_words = {"never there", whole.substr(8, 3)};
  std::string streamed;
  options.stream = [&](std::size_t, std::string_view letters) { streamed += letters; };
  const auto cut = made({"x"}, options)[0];
  EXPECT_EQ(cut.ended, Ended::stop_word);
  EXPECT_EQ(cut.text, whole.substr(0, whole.find(options.stop_words[1])));
  EXPECT_EQ(streamed, cut.text) << "nothing of the stop word is shown";
}

TEST_F(Generation, ATokenOfTheModelThatEndsATextDoes) {
  const GenerateOptions free{.max_tokens = 40, .sampling = {.temperature = 0}};
  const auto whole = made({"x"}, free)[0];
  auto options = free;
  options.end_tokens = {1000, whole.tokens[5]};
  const auto cut = made({"x"}, options)[0];
  const auto first =
      std::find(whole.tokens.begin(), whole.tokens.end(), whole.tokens[5]);
  EXPECT_EQ(cut.ended, Ended::end_of_text);
  EXPECT_EQ(cut.tokens, std::vector<std::int64_t>(whole.tokens.begin(), first + 1));
  EXPECT_EQ(cut.text, whole.text.substr(0, cut.text.size()));
}

TEST_F(Generation, TheContextIsTheEnd) {
  const auto result =
      made({std::string(60, 'a')}, {.max_tokens = 50, .sampling = {.seed = 1}})[0];
  EXPECT_EQ(result.tokens.size(), 4u);
  EXPECT_EQ(result.ended, Ended::context_full);
}

TEST_F(Generation, OneThatIsOverDoesNotHoldTheOthersUp) {
  const std::vector<std::string> prompts{std::string(62, 'a'), "b"};
  const GenerateOptions options{.max_tokens = 40, .sampling = {.temperature = 0}};
  const auto results = made(prompts, options);
  EXPECT_EQ(results[0].ended, Ended::context_full);
  EXPECT_EQ(results[1].tokens, made({"b"}, options)[0].tokens);
}

TEST_F(Generation, PromptsWithoutRoomAreRefusedWithTheArithmetic) {
  EXPECT_THAT(problem(std::string(64, 'a')),
              HasSubstr("prompt 1 has 64 tokens; the model's context is 64"));
  EXPECT_THAT(problem(std::string(70, 'a')), HasSubstr("by at least 7"));
  EXPECT_THAT(problem("a <|endoftext|>"), HasSubstr("<|endoftext|>"));
  EXPECT_EQ(problem(""), "") << "it begins where another text has ended";
}

TEST_F(Generation, AContextOfOneTokenHasNoRoomForAnAnswer) {
  const auto model = test::tiny_gpt(/*context=*/1);
  Decoder decoder(test::weights_of(*model));
  const auto text = test::error_text(Fault::config, [&] {
    generate({decoder, words_}, {"a"}, {});
  });
  EXPECT_THAT(text, HasSubstr("context is 1 token"));
  EXPECT_THAT(text, HasSubstr("data.sequence"));
}

TEST_F(Generation, ATokenizerOfAnotherModelIsRefused) {
  auto weights = test::weights_of(*model_);
  weights.vocabulary = 100;
  Decoder other(std::move(weights));
  try {
    check_vocabulary(other, words_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("has 257 tokens, the model's vocabulary 100"));
  }
}

TEST(WholeLetters, LettersAreNotCut) {
  EXPECT_EQ(whole_letters(""), 0u);
  EXPECT_EQ(whole_letters("abc"), 3u);
  EXPECT_EQ(whole_letters("a\xC3"), 1u);
  EXPECT_EQ(whole_letters("a\xC3\xA4"), 3u);
  EXPECT_EQ(whole_letters("\xE2\x82"), 0u);
  EXPECT_EQ(whole_letters("\xE2\x82\xAC"), 3u);
  EXPECT_EQ(whole_letters("x\xF0\x9F\x98"), 1u);
  EXPECT_EQ(whole_letters("x\xF0\x9F\x98\x80"), 5u);
  EXPECT_EQ(whole_letters("x\x80\x80\x80\x80"), 5u) << "no letter begins there";
}

}  // namespace
}  // namespace lockstep::generate
