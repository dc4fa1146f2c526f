#include "lockstep/config/detail/yaml.h"

#include <algorithm>
#include <optional>
#include <sstream>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include "lockstep/base/str.h"
#include "lockstep/base/text.h"

namespace lockstep::config::detail {
namespace {

constexpr std::size_t kMaxDepth = 16;
constexpr std::size_t kMaxNodes = 10000;
constexpr const char* kNoReferences =
    "anchors and aliases (& and *) are not used in recipes; write the value out, or "
    "quote "
    "it";

Mark mark_of(const YAML::Mark& mark) {
  if (mark.is_null()) return {};
  return {.line = mark.line + 1, .column = mark.column + 1};
}

Mark mark_at(std::string_view text, std::size_t offset) {
  const auto before = text.substr(0, offset);
  Mark mark;
  for (const char c : before) {
    ++mark.column;
    if (c == '\n') mark = {.line = mark.line + 1, .column = 1};
  }
  return mark;
}

// Builds the tree from yaml-cpp's events.
class Builder : public YAML::EventHandler {
 public:
  explicit Builder(std::string_view text) : text_(text) {}

  Node take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (seen_document_) {
      throw SyntaxError{mark_of(mark),
                        "something else starts here; a recipe is one document"};
    }
    seen_document_ = true;
  }
  void OnDocumentEnd() override {}

  void OnAnchor(const YAML::Mark& mark, const std::string&) override {
    refuse_reference(mark);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    refuse_reference(mark);
  }

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (anchor != YAML::NullAnchor) refuse_reference(mark);
    add({.kind = Node::Kind::null, .mark = mark_of(mark)});
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_reference_and_tag(mark, tag, anchor);
    refuse_open_quote(mark);
    add({.kind = Node::Kind::scalar, .mark = mark_of(mark), .text = value});
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag,
                       YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    refuse_reference_and_tag(mark, tag, anchor);
    open({.kind = Node::Kind::sequence, .mark = mark_of(mark)});
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    refuse_reference_and_tag(mark, tag, anchor);
    open({.kind = Node::Kind::map, .mark = mark_of(mark)});
  }
  void OnSequenceEnd() override { open_.pop_back(); }
  void OnMapEnd() override { open_.pop_back(); }

 private:
  [[noreturn]] static void refuse_reference(const YAML::Mark& mark) {
    throw SyntaxError{mark_of(mark), kNoReferences};
  }

  // yaml-cpp takes a quote that the end of the file closes.
  void refuse_open_quote(const YAML::Mark& mark) const {
    const auto begin = static_cast<std::size_t>(std::max(mark.pos, 0));
    const char quote = begin < text_.size() ? text_[begin] : ' ';
    if (quote != '"' && quote != '\'') return;
    for (std::size_t i = begin + 1; i < text_.size(); ++i) {
      if (text_[i] == '\\' && quote == '"') {
        ++i;
      } else if (text_[i] == quote) {
        return;
      }
    }
    throw SyntaxError{mark_of(mark), "this quote is not closed"};
  }

  // yaml-cpp calls a plain node "?" and a quoted one "!".
  static void refuse_reference_and_tag(const YAML::Mark& mark, const std::string& tag,
                                       YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) refuse_reference(mark);
    if (tag.empty() || tag == "?" || tag == "!") return;
    throw SyntaxError{mark_of(mark),
                      str("tags are not used in recipes; remove '", tag, "'")};
  }

  void open(Node node) {
    if (open_.size() >= kMaxDepth) {
      throw SyntaxError{node.mark, str("nested deeper than ", kMaxDepth,
                                       " levels; a recipe has sections and keys")};
    }
    open_.push_back(add(std::move(node)));
  }

  // Pointers to open nodes stay valid: only the innermost one grows.
  Node* add(Node node) {
    if (++num_nodes_ > kMaxNodes) {
      throw SyntaxError{node.mark,
                        str("more than ", kMaxNodes, " values; this is not a recipe")};
    }
    if (open_.empty()) {
      root_ = std::move(node);
      return &root_;
    }
    open_.back()->items.push_back(std::move(node));
    return &open_.back()->items.back();
  }

  std::string_view text_;
  Node root_;
  std::vector<Node*> open_;
  std::size_t num_nodes_ = 0;
  bool seen_document_ = false;
};

// The remedies for bytes that are no text.
struct Remedies {
  std::string_view not_utf8, control;
};
constexpr Remedies kOfAFile{"save the file as UTF-8 text", "this is not a text file"};
constexpr Remedies kOfAValue{"write the value in UTF-8", "leave it out"};

void refuse_odd_bytes(std::string_view text, const Remedies& remedies) {
  if (const auto at = text::first_invalid_utf8(text)) {
    throw SyntaxError{mark_at(text, *at),
                      str("not UTF-8 at byte ", *at + 1, "; ", remedies.not_utf8)};
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if ((c >= 0x20 && c != 0x7F) || c == '\n' || c == '\t') continue;
    throw SyntaxError{mark_at(text, i), str("control character ", static_cast<int>(c),
                                            "; ", remedies.control)};
  }
}

// Returns the text with LF only and no byte order mark.
std::string normalised(std::string_view text) {
  if (text::starts_with(text, "\xEF\xBB\xBF")) text.remove_prefix(3);
  std::string result;
  result.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      result += text[i];
    } else if (i + 1 == text.size() || text[i + 1] != '\n') {
      result += '\n';
    }
  }
  return result;
}

// Returns the first line up to `last` that is indented by a tab: the cause of most
// "illegal" places of a YAML parser.
std::optional<Mark> tab_indentation(std::string_view text, int last) {
  int line = 0;
  for (const auto& content : text::split(text, '\n')) {
    if (++line > last) return std::nullopt;
    const auto indentation = content.substr(0, content.find_first_not_of(" \t"));
    const auto tab = indentation.find('\t');
    if (tab != std::string::npos) return Mark{line, static_cast<int>(tab) + 1};
  }
  return std::nullopt;
}

SyntaxError explain(const YAML::Exception& error, std::string_view text) {
  const auto mark = mark_of(error.mark);
  if (const auto tab = tab_indentation(text, mark.line)) {
    return {*tab, "indented by a tab; YAML wants spaces"};
  }
  if (error.msg.find("anchor") != std::string::npos) return {mark, kNoReferences};
  return {mark, str("not YAML: ", error.msg)};
}

}  // namespace

std::string_view name_of(Node::Kind kind) noexcept {
  switch (kind) {
    case Node::Kind::null:
      return "empty";
    case Node::Kind::scalar:
      return "a single value";
    case Node::Kind::sequence:
      return "a list";
    case Node::Kind::map:
      return "a map";
  }
  return "";
}

Node parse_yaml(std::string_view raw) {
  const auto text = normalised(raw);
  refuse_odd_bytes(text, kOfAFile);
  std::istringstream stream(text);
  Builder builder(text);
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    throw explain(error, text);
  }
  return builder.take();
}

Node parse_value(std::string_view text) {
  refuse_odd_bytes(text, kOfAValue);
  const auto content = text::trim(text);
  if (!content.empty() &&
      std::string_view("[\"'").find(content[0]) != std::string_view::npos) {
    return parse_yaml(content);
  }
  return {
      .kind = Node::Kind::scalar, .mark = {}, .text = std::string(text), .items = {}};
}

}  // namespace lockstep::config::detail
