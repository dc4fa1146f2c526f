#pragma once

#include <optional>
#include <string>
#include <string_view>

// How the messages of a chat are written: "{role}: {content}\n" (data.chat_template)
// for us, a Jinja template for transformers.
namespace lockstep::tokenizer {

// The parts of a message around its content.
struct MessageFrame {
  std::string before, behind;
};

// Returns them with the role filled in; "\n" is spelled out in a template. Throws
// Fault::config for a template without {content}.
MessageFrame message_frame(std::string_view chat_template, std::string_view role);

// Returns the Jinja template by which transformers writes the same messages. With
// add_generation_prompt it ends where an answer begins, without the spaces before it:
// these belong to the answer's first token.
std::string to_jinja(std::string_view chat_template);

// Reverses it; nothing for a Jinja template that to_jinja() did not write.
std::optional<std::string> from_jinja(std::string_view jinja);

}  // namespace lockstep::tokenizer
