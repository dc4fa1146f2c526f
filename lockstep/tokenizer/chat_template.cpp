#include "lockstep/tokenizer/chat_template.h"

#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::tokenizer {
namespace {

constexpr std::string_view kContent = "{content}";
constexpr std::string_view kRole = "{role}";

// Of the Jinja template.
constexpr std::string_view kLoop = "{% for message in messages %}{{ ";
constexpr std::string_view kLoopEnd = " }}{% endfor %}";
constexpr std::string_view kAnswer = "{% if add_generation_prompt %}{{ ";
constexpr std::string_view kAnswerEnd = " }}{% endif %}";
constexpr std::string_view kAnd = " ~ ";
constexpr std::string_view kJinjaContent = "message['content']";
constexpr std::string_view kJinjaRole = "message['role']";

std::string replaced(std::string_view text, std::string_view what,
                     std::string_view with) {
  std::string filled(text);
  for (auto at = filled.find(what); at != std::string::npos;
       at = filled.find(what, at + with.size())) {
    filled.replace(at, what.size(), with);
  }
  return filled;
}

std::string literal(std::string_view text) {
  std::string out = "'";
  for (const char letter : text) {
    if (letter == '\n' || letter == '\r') {
      out += letter == '\n' ? "\\n" : "\\r";
      continue;
    }
    if (letter == '\'' || letter == '\\') out += '\\';
    out += letter;
  }
  return out + "'";
}

// Adds a text in which roles stand as expressions.
void add_pieces(std::string_view text, std::vector<std::string>& pieces) {
  for (auto at = text.find(kRole); at != text.npos; at = text.find(kRole)) {
    if (at > 0) pieces.push_back(literal(text.substr(0, at)));
    pieces.emplace_back(kJinjaRole);
    text.remove_prefix(at + kRole.size());
  }
  if (!text.empty()) pieces.push_back(literal(text));
}

std::string answer_prefix(std::string_view chat_template) {
  auto before = message_frame(chat_template, "assistant").before;
  while (before.ends_with(' ')) before.pop_back();
  return before;
}

// Takes a literal off the front of `text`, as it stands in a template of ours.
std::optional<std::string> take_literal(std::string_view& text) {
  std::string out;
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '\'') {
      text.remove_prefix(i + 1);
      return out;
    }
    if (text[i] == '\\' && i + 1 < text.size()) {
      const char letter = text[++i];
      // A new line is spelled with two letters, as data.chat_template does.
      if (letter == 'n') out += '\\';
      out += letter == 'r' ? '\r' : letter;
    } else {
      out += text[i];
    }
  }
  return std::nullopt;
}

bool take(std::string_view& text, std::string_view front) {
  if (!text.starts_with(front)) return false;
  text.remove_prefix(front.size());
  return true;
}

}  // namespace

MessageFrame message_frame(std::string_view chat_template, std::string_view role) {
  // A recipe has no line breaks in its values: the template spells them.
  const auto text = replaced(chat_template, "\\n", "\n");
  const auto at = text.find(kContent);
  if (at == std::string::npos) {
    throw Error(Fault::config, "data.chat_template: '", chat_template,
                "' has no {content}; write it where the text of a message goes");
  }
  return {replaced(text.substr(0, at), kRole, role),
          replaced(text.substr(at + kContent.size()), kRole, role)};
}

std::string to_jinja(std::string_view chat_template) {
  const auto [before, behind] = message_frame(chat_template, kRole);
  std::vector<std::string> pieces;
  add_pieces(before, pieces);
  pieces.emplace_back(kJinjaContent);
  add_pieces(behind, pieces);
  std::string message;
  for (const auto& piece : pieces) message += (message.empty() ? "" : " ~ ") + piece;
  return str(kLoop, message, kLoopEnd, kAnswer, literal(answer_prefix(chat_template)),
             kAnswerEnd);
}

std::optional<std::string> from_jinja(std::string_view jinja) {
  auto rest = jinja;
  if (!take(rest, kLoop)) return std::nullopt;
  std::string text;
  while (true) {
    if (take(rest, kJinjaContent)) {
      text += kContent;
    } else if (take(rest, kJinjaRole)) {
      text += kRole;
    } else if (rest.starts_with('\'')) {
      const auto piece = take_literal(rest);
      if (!piece) return std::nullopt;
      text += *piece;
    } else {
      return std::nullopt;
    }
    if (!take(rest, kAnd)) break;
  }
  // What it says beside the messages has to be ours, too.
  if (text.find(kContent) == text.npos || to_jinja(text) != jinja) return std::nullopt;
  return text;
}

}  // namespace lockstep::tokenizer
