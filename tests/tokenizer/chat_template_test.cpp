#include "lockstep/tokenizer/chat_template.h"

#include "tests/support/support.h"

namespace lockstep::tokenizer {
namespace {

TEST(ChatTemplate, FramesAMessageWithItsRole) {
  const auto [before, behind] = message_frame("<{role}>\\n{content}</{role}>", "user");
  EXPECT_EQ(before, "<user>\n");
  EXPECT_EQ(behind, "</user>");
  EXPECT_THAT(
      test::error_text(Fault::config, [] { message_frame("{role}: ", "user"); }),
      testing::HasSubstr("data.chat_template: '{role}: ' has no {content}"));
}

TEST(ChatTemplate, BecomesJinjaAndComesBack) {
  EXPECT_EQ(to_jinja("{role}: {content}\\n"),
            "{% for message in messages %}{{ message['role'] ~ ': ' ~ "
            "message['content'] ~ '\\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}");
  for (const char* text :
       {"{role}: {content}\\n", "{content}", "a'b\\c\"{role}{role}{content}{content}",
        "{% x %}{{ {content} }}\\n\\n"}) {
    EXPECT_EQ(from_jinja(to_jinja(text)), text);
  }
}

TEST(ChatTemplate, OneOfOthersIsNotTakenForOurs) {
  const std::string ours = to_jinja("{role}: {content}");
  for (const std::string& text :
       {std::string(), ours + "x", ours.substr(0, ours.size() - 1), ours.substr(0, 40),
        std::string("{% for message in messages %}{{ bos_token }}{% endfor %}"),
        std::string("{% for message in messages %}{{ 'no end")}) {
    EXPECT_EQ(from_jinja(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace lockstep::tokenizer
