#include "lockstep/generate/chat.h"

#include "lockstep/base/text.h"
#include "lockstep/data/examples.h"

namespace lockstep::generate {

Chat::Chat(Decoder& decoder, const tokenizer::Tokenizer& words, Settings settings)
    : decoder_(decoder), words_(words), settings_(std::move(settings)) {
  // Where a message ends, an answer does: "\n" alone would be too early for one that
  // has several lines, so the begin of the user's next message ends it, too.
  auto end = data::message_suffix(settings_.text, "assistant");
  if (!text::trim(end).empty()) settings_.options.stop_words.push_back(std::move(end));
  for (const auto* role : {"user", "system"}) {
    const auto prefix = data::message_prefix(settings_.text, role);
    const std::string begin(text::trim(prefix));
    if (!begin.empty()) settings_.options.stop_words.push_back("\n" + begin);
  }
}

std::string Chat::written(const Message& message) const {
  return data::message_prefix(settings_.text, message.role) + message.content +
         data::message_suffix(settings_.text, message.role);
}

std::string Chat::prompt() const {
  std::string text;
  if (!settings_.system.empty()) text += written({"system", settings_.system});
  for (const auto& message : messages_) text += written(message);
  // A model has learnt to go on behind the space, which is part of the first word's
  // token.
  auto prefix = data::message_prefix(settings_.text, "assistant");
  while (prefix.ends_with(' ')) prefix.pop_back();
  return text + prefix;
}

// A conversation is turned into tokens piece by piece, as its examples were.
std::vector<std::int64_t> Chat::prompt_tokens() const {
  std::vector<std::int64_t> tokens;
  const auto add = [&](std::string_view text) {
    for (const auto token : words_.encode(text)) tokens.push_back(token);
  };
  const auto stripped = [](std::string text) {
    while (text.ends_with(' ')) text.pop_back();
    return text;
  };
  const auto add_message = [&](const Message& message) {
    const auto prefix = data::message_prefix(settings_.text, message.role);
    const auto before = stripped(prefix);
    add(before);
    add(prefix.substr(before.size()) + message.content +
        data::message_suffix(settings_.text, message.role));
  };
  if (!settings_.system.empty()) add_message({"system", settings_.system});
  for (const auto& message : messages_) add_message(message);
  add(stripped(data::message_prefix(settings_.text, "assistant")));
  return tokens;
}

std::string Chat::answer(const std::string& message,
                         const std::function<void(std::string_view)>& stream) {
  const auto before = messages_;
  messages_.push_back({"user", message});
  std::vector<Generated> made;
  try {
    const auto room = decoder_.context() - 1;
    while (messages_.size() > 1 &&
           static_cast<std::int64_t>(prompt_tokens().size()) > room) {
      messages_.erase(messages_.begin());
    }
    made = generate_from(decoder_, words_, {prompt_tokens()}, settings_.options,
                         [&](std::size_t, std::string_view letters) {
                           if (stream) stream(letters);
                         });
  } catch (...) {  // the conversation is as it was before this message
    messages_ = before;
    throw;
  }
  std::string text(text::trim(made[0].text));
  messages_.push_back({"assistant", text});
  return text;
}

}  // namespace lockstep::generate
