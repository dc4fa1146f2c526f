#pragma once

#include <string>
#include <string_view>
#include <vector>

// The content of a recipe as a small tree, each node with its place. yaml-cpp's own
// nodes are not used: its events let us refuse aliases and deep nesting before they
// cost anything.
namespace lockstep::config::detail {

// A position, counted from 1 as editors do.
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

// Returns "a map", "a list", ...
std::string_view name_of(Node::Kind kind) noexcept;

// The reason why a text is no recipe, and its place.
struct SyntaxError {
  Mark mark;
  std::string message;
};

// Parses YAML, or JSON as its subset; CRLF and a byte order mark are tolerated. A text
// without any value gives a null node. Throws SyntaxError, also for features that
// recipes may not use: anchors and aliases, tags, several documents, control
// characters, text that is not UTF-8, more than 16 levels, more than 10,000 values.
Node parse_yaml(std::string_view text);

// Parses the value of key=value: a list or a quoted text as in YAML, all else verbatim,
// so that a path may contain any character. Throws SyntaxError.
Node parse_value(std::string_view text);

}  // namespace lockstep::config::detail
