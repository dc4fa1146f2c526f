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

std::string Chat::answer(const std::string& message,
                         const std::function<void(std::string_view)>& stream) {
  messages_.push_back({"user", message});
  const auto room = decoder_.context() - 1;
  while (messages_.size() > 1 &&
         static_cast<std::int64_t>(words_.encode(prompt()).size()) > room) {
    messages_.erase(messages_.begin());
  }
  const auto made = generate(decoder_, words_, {prompt()}, settings_.options,
                             [&](std::size_t, std::string_view letters) {
                               if (stream) stream(letters);
                             });
  std::string text(text::trim(made[0].text));
  messages_.push_back({"assistant", text});
  return text;
}

}  // namespace lockstep::generate
