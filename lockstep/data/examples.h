#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/config/text_data.h"

// The examples of .jsonl files, one a line:
//
//   {"text": "..."}
//   {"prompt": "...", "completion": "..."}
//   {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", ...}]}
namespace lockstep::data {

// A stretch of an example: learnt, or only read.
struct Stretch {
  std::string text;
  bool is_learnt = true;

  bool operator==(const Stretch&) const = default;
};

using Example = std::vector<Stretch>;

// Returns the example of one line. Throws Fault::io with what is wrong with it, without
// its place.
Example parse_example(std::string_view line, const config::TextData& config);

// Calls `take` with each example of a file; blank lines and a byte order mark are
// skipped. Errors name the file and the line, those of `take` as well.
void read_examples(const std::filesystem::path& file, const config::TextData& config,
                   const std::function<void(const Example&)>& take);

// Returns the part of a chat template before {content}, with the role in it: the text
// after which a model answers. Throws Fault::config for a template without {content}.
std::string message_prefix(const config::TextData& config, std::string_view role);

// A message in the two parts that are turned into tokens apart. Spaces before the
// content belong to its first token, as a model that answers will write them; what
// stands behind it ends an answer, and is learnt with it.
struct MessageStretches {
  std::string before, content;
};
MessageStretches message_stretches(const config::TextData& config,
                                   std::string_view role, std::string_view content);

// Returns the part behind {content}, which ends a message.
std::string message_suffix(const config::TextData& config, std::string_view role);

}  // namespace lockstep::data
