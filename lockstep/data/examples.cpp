#include "lockstep/data/examples.h"

#include <array>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/tokenizer/chat_template.h"
#include "lockstep/tokenizer/documents.h"

namespace lockstep::data {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 4> kRoles = {"system", "user", "assistant",
                                                    "tool"};

tokenizer::MessageFrame frame_of(const config::TextData& config,
                                 std::string_view role) {
  return tokenizer::message_frame(config.chat_template, role);
}

std::string text_at(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) {
    throw Error(Fault::io, "there is no \"", key, "\"");
  }
  if (!found->is_string()) {
    throw Error(Fault::io, "\"", key, "\" is ", found->type_name(), ", not a string");
  }
  return found->get<std::string>();
}

void check_role(const std::string& role) {
  for (const auto known : kRoles) {
    if (role == known) return;
  }
  std::vector<std::string> names(kRoles.begin(), kRoles.end());
  throw Error(Fault::io, "there is no role '", role, "'; there are ",
              text::join(names, ", "), text::did_you_mean(role, names));
}

Example chat_of(const json& messages, const config::TextData& config) {
  if (!messages.is_array() || messages.empty()) {
    throw Error(Fault::io, "\"messages\" is not a list with a message in it");
  }
  Example example;
  bool answers = false;
  for (const auto& message : messages) {
    if (!message.is_object()) {
      throw Error(Fault::io, "a message is ", message.type_name(), ", not an object");
    }
    const auto role = text_at(message, "role");
    check_role(role);
    const bool is_learnt = config.loss_on == config::LossOn::all || role == "assistant";
    answers = answers || is_learnt;
    const auto [before, content] =
        message_stretches(config, role, text_at(message, "content"));
    example.push_back({before, config.loss_on == config::LossOn::all});
    example.push_back({content, is_learnt});
  }
  if (!answers) {
    throw Error(Fault::io,
                "no message is the assistant's, so there is nothing to learn; "
                "data.loss_on=all learns the others");
  }
  return example;
}

}  // namespace

std::string message_prefix(const config::TextData& config, std::string_view role) {
  return frame_of(config, role).before;
}

std::string message_suffix(const config::TextData& config, std::string_view role) {
  return frame_of(config, role).behind;
}

MessageStretches message_stretches(const config::TextData& config,
                                   std::string_view role, std::string_view content) {
  auto [before, behind] = frame_of(config, role);
  std::string spaces;
  while (before.ends_with(' ')) {
    before.pop_back();
    spaces += ' ';
  }
  return {std::move(before), str(spaces, content, behind)};
}

Example parse_example(std::string_view line, const config::TextData& config) {
  json object;
  try {
    object = json::parse(line);
  } catch (const json::parse_error& error) {
    throw Error(Fault::io, "it is not JSON (at byte ", error.byte,
                " of the line); write one object a line");
  }
  if (!object.is_object()) {
    throw Error(Fault::io, "it is ", object.type_name(), ", not an object");
  }
  if (object.contains("messages")) return chat_of(object["messages"], config);
  if (object.contains("prompt") || object.contains("completion")) {
    return {{text_at(object, "prompt"), config.loss_on == config::LossOn::all},
            {text_at(object, "completion"), true}};
  }
  if (object.contains("text")) return {{text_at(object, "text"), true}};
  throw Error(Fault::io,
              "it has none of \"text\", \"prompt\" with \"completion\", and "
              "\"messages\"");
}

void read_examples(const std::filesystem::path& file, const config::TextData& config,
                   const std::function<void(const Example&)>& take) {
  const tokenizer::FileBytes bytes(file);
  auto rest = bytes.text();
  tokenizer::JsonLine line;
  while (tokenizer::next_json_line(rest, line)) {
    try {
      take(parse_example(line.text, config));
    } catch (const Error& error) {
      throw Error(error.fault(), "data: '", file.string(), "' line ", line.number, ": ",
                  error.what());
    }
  }
}

}  // namespace lockstep::data
