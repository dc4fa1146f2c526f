// The chat template of an export, as we write it and as transformers reads it.
#include <nlohmann/json.hpp>

#include "lockstep/hf/export.h"
#include "lockstep/tokenizer/chat_template.h"
#include "lockstep/tokenizer/files.h"
#include "tests/support/oracle.h"
#include "tests/tokenizer/support/small.h"

namespace lockstep::hf {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string kOwn = "{{ messages[0]['content'] }}";

json tokenizer_config(const Path& folder) {
  return json::parse(test::read_file(folder / "tokenizer_config.json"));
}

config::TextData written_as(const std::string& chat_template) {
  config::TextData text;
  text.chat_template = chat_template;
  return text;
}

TEST(ChatFiles, TheTemplateJoinsWhatIsThereAndComesBack) {
  const files::TemporaryDirectory folder;
  test::write_file(
      folder.path() / "tokenizer_config.json",
      R"({"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|endoftext|>"})");
  write_chat_template(written_as("<{role}>{content}</{role}>\\n"), folder.path());
  const auto config = tokenizer_config(folder.path());
  EXPECT_EQ(config.at("eos_token"), "<|endoftext|>");
  EXPECT_THAT(config.at("chat_template").get<std::string>(),
              HasSubstr("message['role']"));
  EXPECT_EQ(read_chat_template(folder.path()), "<{role}>{content}</{role}>\\n");
}

TEST(ChatFiles, ATokenizersOwnTemplateStaysUnlessAnotherWasAskedFor) {
  const files::TemporaryDirectory folder;
  test::write_file(folder.path() / "tokenizer_config.json", "{}");
  test::write_file(folder.path() / "chat_template.jinja", kOwn);
  write_chat_template({}, folder.path());
  EXPECT_FALSE(tokenizer_config(folder.path()).contains("chat_template"));
  EXPECT_EQ(read_chat_template(folder.path()), std::nullopt) << "it is one of others";
  write_chat_template(written_as("{content}"), folder.path());
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "chat_template.jinja"))
      << "transformers would prefer it";
  EXPECT_EQ(read_chat_template(folder.path()), "{content}");
}

TEST(ChatFiles, ADamagedFileIsNamed) {
  const files::TemporaryDirectory folder;
  for (const char* text : {"{", "[]"}) {
    test::write_file(folder.path() / "tokenizer_config.json", text);
    EXPECT_THAT(
        test::error_text(Fault::io, [&] { write_chat_template({}, folder.path()); }),
        HasSubstr("tokenizer_config.json: "));
  }
}

// Returns what `lockstep chat` would begin an answer with.
std::string written(const std::string& chat_template, const json& messages) {
  std::string text;
  for (const auto& message : messages) {
    const auto frame =
        tokenizer::message_frame(chat_template, message.at("role").get<std::string>());
    text += frame.before + message.at("content").get<std::string>() + frame.behind;
  }
  auto answer = tokenizer::message_frame(chat_template, "assistant").before;
  while (answer.ends_with(' ')) answer.pop_back();
  return text + answer;
}

TEST(ChatFiles, TransformersWritesTheSame) {
  LOCKSTEP_NEEDS_ORACLE();
  const json messages = {
      {{"role", "system"}, {"content", "Be brief."}},
      {{"role", "user"}, {"content", "  {{ x }} 'a' \\n\n\xC3\xA9 "}},
      {{"role", "assistant"}, {"content", ""}},
      {{"role", "user"}, {"content", "{role}{content}{% if %}"}}};
  const files::TemporaryDirectory folder;
  auto cases = json::array();
  for (const char* chat_template :
       {"{role}: {content}\\n", "{content}", "<|{role}|>\\n{content}<|end|>\\n",
        "'{role}' \\\\ \"{content}\" {{role}} {% raw %} }} {content}",
        "\xC3\xA9{role}\r\n\t{content}   "}) {
    const auto path = folder.path() / std::to_string(cases.size());
    tokenizer::save(test::small_tokenizer(), path);
    write_chat_template(written_as(chat_template), path);
    cases.push_back({{"folder", path.string()},
                     {"messages", messages},
                     {"text", written(chat_template, messages)}});
  }
  test::write_file(folder.path() / "cases.json", cases.dump());
  test::expect_oracle_agrees("chat_template.py",
                             {(folder.path() / "cases.json").string()});
}

}  // namespace
}  // namespace lockstep::hf
