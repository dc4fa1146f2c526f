#pragma once

#include <string>
#include <string_view>
#include <vector>

// A small tree of what a recipe says, each node with its place. yaml-cpp's own nodes
// are not used: its events let us refuse aliases and deep nesting before they cost
// anything.
namespace lockstep::config::detail {

// Counted from 1, as editors do.
struct Mark {
  int line = 1;
  int column = 1;
};

struct Node {
  enum class Kind { null, scalar, sequence, map };

  Kind kind = Kind::null;
  Mark mark;
  std::string text = {};         // of a scalar
  std::vector<Node> items = {};  // of a sequence; of a map: key, value, key, value, ...
};

// "a map", "a list", ...
std::string_view name_of(Node::Kind kind) noexcept;

// Why a text is no recipe, and where.
struct SyntaxError {
  Mark mark;
  std::string message;
};

// YAML, or JSON as its subset; CRLF and a byte order mark are tolerated. A text without
// any value gives a null node. Throws SyntaxError, also for what recipes may not use:
// anchors and aliases, tags, several documents, control characters, text that is not
// UTF-8, more than 16 levels, more than 10,000 values.
Node parse_yaml(std::string_view text);

// The value of key=value: a list or a quoted text as in YAML, all else as it stands, so
// that a path may contain any character. Throws SyntaxError.
Node parse_value(std::string_view text);

}  // namespace lockstep::config::detail
