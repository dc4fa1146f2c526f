// Maps of names to values.
#include <algorithm>

#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/config/detail/value.h"

namespace lockstep::config::detail {
namespace {

// Returns whether a text can name a part of a task in names of tensors and metrics.
bool is_name(std::string_view text) noexcept {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  if (text.empty() || !is_letter(text[0])) return false;
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || c == '_';
  });
}

// On a command line and in a variable a map is a text. It is parsed here and not for
// every knob, so that a path that begins with a brace stays one.
Node map_in(const Node& node) {
  const auto text = text::trim(node.text);
  if (node.kind != Node::Kind::scalar || !text::starts_with(text, "{")) return node;
  auto map = parse_yaml(text);
  for (auto& item : map.items) item.mark = node.mark;
  return map;
}

Problem problem_at(const Mark& mark, std::string text) {
  Problem problem(std::move(text));
  problem.mark = mark;
  return problem;
}

Problem problem_with_name(const Node& key, const Entries& before) {
  if (key.kind != Node::Kind::scalar) {
    return problem_at(key.mark, str("a key is a name, not ", name_of(key.kind)));
  }
  constexpr std::size_t kLongest = 60;
  if (!is_name(key.text) || key.text.size() > kLongest) {
    return problem_at(key.mark, str("'", key.text.substr(0, kLongest),
                                    "' is not a name; write up to ", kLongest,
                                    " letters, digits and _, the first one a letter"));
  }
  const bool is_new = std::none_of(before.all.begin(), before.all.end(),
                                   [&](auto& e) { return e.first == key.text; });
  if (is_new) return std::nullopt;
  return problem_at(key.mark, str("'", key.text, "' appears twice; name it once"));
}

Entries entries_in(const Node& map) {
  Entries entries;
  for (std::size_t i = 0; i + 1 < map.items.size(); i += 2) {
    const auto& key = map.items[i];
    entries.problem = problem_with_name(key, entries);
    if (entries.problem) return entries;
    auto value = map.items[i + 1];
    // An empty value has no place of its own.
    if (value.kind == Node::Kind::null) value.mark = key.mark;
    entries.all.emplace_back(key.text, std::move(value));
  }
  return entries;
}

}  // namespace

Entries entries_of(const Node& node, std::string_view expected) {
  if (node.kind == Node::Kind::null) {
    return {{}, str("has no value; write ", expected, ", or leave the key out")};
  }
  try {
    const auto map = map_in(node);
    if (map.kind == Node::Kind::map) return entries_in(map);
  } catch (const SyntaxError& error) {
    return {{}, error.message};
  }
  return {{}, str("is ", name_of(node.kind), "; write ", expected)};
}

}  // namespace lockstep::config::detail
