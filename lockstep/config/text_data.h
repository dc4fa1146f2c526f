#pragma once

#include <array>
#include <string>
#include <string_view>

#include "lockstep/config/enums.h"
#include "lockstep/config/field.h"

namespace lockstep::config {

// The targets that count in an example of a prompt and its completion.
enum class LossOn { completion, all };

constexpr std::array<std::string_view, 2> names_of(LossOn) {
  return {"completion", "all"};
}

// Knobs of data.name: text.
struct TextData {
  std::string tokenizer;
  bool pack = true;
  LossOn loss_on = LossOn::completion;
  std::string chat_template = "{role}: {content}\\n";
};

template <typename Visitor>
void describe_text(TextData& c, Visitor& v) {
  v.field("tokenizer", c.tokenizer,
          {.help = "text: folder or file of the tokenizer (tokenizer.json, vocab.json "
                   "with merges.txt, or *.tiktoken). tokens: with it, losses are also "
                   "reported in bits per byte. csv and parquet: of a column of text. "
                   "Empty: that of model.weights.",
           .needs = "data.name=text|tokens|csv|parquet",
           .is_local = true});
  v.field(
      "pack", c.pack,
      {.help = "text: examples of a .jsonl file share rows of data.sequence tokens, "
               "without seeing each other; false: each has a row, filled up.",
       .affects = Affects::speed,
       .needs = "data.name=text"});
  v.field(
      "loss_on", c.loss_on,
      {.help =
           "text: the tokens that count in the loss, of a prompt with its completion "
           "or of a chat: the completion (the assistant's messages), or all.",
       .needs = "data.name=text"});
  v.field("chat_template", c.chat_template,
          {.help = "text: the template of a chat message; {role} and {content} stand "
                   "for its parts, \\n"
                   " for a new line.",
           .needs = "data.name=text"});
}

}  // namespace lockstep::config
