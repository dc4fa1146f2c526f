#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/config/text_data.h"
#include "lockstep/generate/generate.h"

namespace lockstep::generate {

// A conversation: the messages so far are the prompt of the next answer. The oldest are
// left out when the model's context has no more room for them; the system's message
// stays.
class Chat {
 public:
  struct Settings {
    GenerateOptions options;
    config::TextData text;  // its template
    std::string system;     // the first message; empty: none
  };

  // Lifetime: decoder and tokenizer outlive it.
  Chat(Decoder& decoder, const tokenizer::Tokenizer& words, Settings settings);

  // Returns the answer to a message, which ends where the template ends a message.
  std::string answer(const std::string& message,
                     const std::function<void(std::string_view letters)>& stream = {});

  // Forgets what was said.
  void reset() { messages_.clear(); }

  // Returns the text that the next answer would continue.
  std::string prompt() const;

 private:
  struct Message {
    std::string role, content;
  };
  std::vector<std::string> stretches() const;
  std::vector<std::int64_t> prompt_tokens() const;

  Decoder& decoder_;
  const tokenizer::Tokenizer& words_;
  Settings settings_;
  std::vector<Message> messages_;
};

}  // namespace lockstep::generate
