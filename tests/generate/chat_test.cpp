#include "lockstep/generate/chat.h"

#include <gmock/gmock.h>

#include "lockstep/base/files.h"
#include "tests/generate/tiny_model.h"
#include "tests/support/byte_tokenizer.h"

namespace lockstep::generate {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(Chat, TheConversationIsThePrompt) {
  const files::TemporaryDirectory folder;
  const auto words =
      tokenizer::Tokenizer::load(test::write_byte_tokenizer(folder.path()));
  Decoder decoder(test::weights_of(*test::tiny_gpt(128)));
  const GenerateOptions options{.max_tokens = 8, .sampling = {.temperature = 0}};
  Chat::Settings settings;
  settings.options = options;
  settings.system = "Be kind.";
  Chat chat(decoder, words, settings);
  EXPECT_EQ(chat.prompt(), "system: Be kind.\nassistant:");
  std::string streamed;
  const auto answer =
      chat.answer("Hello", [&](std::string_view letters) { streamed += letters; });
  EXPECT_THAT(chat.prompt(),
              StartsWith("system: Be kind.\nuser: Hello\nassistant: " + answer));
  EXPECT_THAT(streamed, HasSubstr(answer));

  // Old messages make room, the first one stays.
  for (int i = 0; i < 4; ++i) chat.answer("And then, what came after that?");
  EXPECT_THAT(chat.prompt(), StartsWith("system: Be kind.\n"));
  EXPECT_THAT(chat.prompt(), Not(HasSubstr("Hello")));
  chat.reset();
  EXPECT_EQ(chat.prompt(), "system: Be kind.\nassistant:");
}

}  // namespace
}  // namespace lockstep::generate
