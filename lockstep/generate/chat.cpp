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

// A conversation is turned into tokens piece by piece, as its examples were.
std::vector<std::string> Chat::stretches() const {
  std::vector<std::string> all;
  const auto add = [&](const std::string& role, const std::string& content) {
    auto [before, behind] = data::message_stretches(settings_.text, role, content);
    all.push_back(std::move(before));
    all.push_back(std::move(behind));
  };
  if (!settings_.system.empty()) add("system", settings_.system);
  for (const auto& [role, content] : messages_) add(role, content);
  all.push_back(data::message_stretches(settings_.text, "assistant", "").before);
  return all;
}

std::string Chat::prompt() const {
  return text::join(stretches(), "");
}

std::vector<std::int64_t> Chat::prompt_tokens() const {
  std::vector<std::int64_t> tokens;
  for (const auto& text : stretches()) {
    for (const auto token : words_.encode(text)) tokens.push_back(token);
  }
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
    auto options = settings_.options;
    options.stream = [&](std::size_t, std::string_view letters) {
      if (stream) stream(letters);
    };
    made = generate_from({decoder_, words_}, {prompt_tokens()}, options);
  } catch (...) {  // the conversation is as it was before this message
    messages_ = before;
    throw;
  }
  std::string text(text::trim(made[0].text));
  messages_.push_back({"assistant", text});
  return text;
}

}  // namespace lockstep::generate
