#include "lockstep/config/detail/value.h"

#include <charconv>
#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include "lockstep/base/str.h"
#include "lockstep/base/text.h"

namespace lockstep::config::detail {
namespace {

struct Scalar {
  std::string text;
  Problem problem;
};

Scalar scalar_of(const Node& node, std::string_view expected) {
  if (node.kind == Node::Kind::null) {
    return {"", str("has no value; write ", expected, ", or leave the key out")};
  }
  if (node.kind != Node::Kind::scalar) {
    return {"", str("is ", name_of(node.kind), "; write ", expected)};
  }
  std::string text(text::trim(node.text));
  if (text.empty()) return {"", str("is empty; write ", expected)};
  return {text, std::nullopt};
}

// Long texts are cut: an error is one line.
std::string shown(const std::string& text) {
  constexpr std::size_t kLongest = 60;
  if (text.size() <= kLongest) return "'" + text + "'";
  auto end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return "'" + text.substr(0, end) + "...'";
}

bool contains(const Range& range, double value) {
  const bool above_low = range.low_is_open ? value > range.low : value >= range.low;
  const bool below_high = range.high_is_open ? value < range.high : value <= range.high;
  return above_low && below_high;
}

Problem out_of_range(const std::string& text, const Range& range) {
  return str(text, " is out of range; it must be ", describe(range));
}

std::string number(double value) {
  const bool whole = value == std::trunc(value) && std::abs(value) < 1e15;
  return whole ? text::with_commas(static_cast<long long>(value))
               : text::from_double(value);
}

std::optional<std::int64_t> parse_integer(const std::string& text, Unit unit) {
  if (unit == Unit::bytes) return units::parse_bytes(text);
  return text::to_integer(text);
}

template <typename Integer>
Problem read_integer(const Node& node, const Field& field, Integer& out) {
  const bool bytes = field.unit == Unit::bytes;
  const std::string_view expected =
      bytes ? "a size like 25MB or 1.5GiB" : "a whole number";
  const auto scalar = scalar_of(node, expected);
  if (scalar.problem) return scalar.problem;
  if (field.word && scalar.text == field.word->text) {
    out = static_cast<Integer>(field.word->value);
    return std::nullopt;
  }
  const auto value = parse_integer(scalar.text, field.unit);
  if (!value) {
    return str(shown(scalar.text), " is not ", expected,
               field.word ? str(" (or ", field.word->text, ")") : "");
  }
  using Limits = std::numeric_limits<Integer>;
  if (*value < Limits::min() || *value > Limits::max() ||
      !contains(field.range, static_cast<double>(*value))) {
    return out_of_range(scalar.text, field.range);
  }
  out = static_cast<Integer>(*value);
  return std::nullopt;
}

bool is_plain(const std::string& text) {
  if (text.empty() || text == "null" || text == "Null" || text == "NULL") return false;
  const auto alnum = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  for (const char c : text) {
    if (!alnum(c) && std::string_view("_./-").find(c) == std::string_view::npos)
      return false;
  }
  return alnum(text[0]) || text[0] == '/';
}

template <typename T>
Problem read_list(const Items& items, const Field& field, std::vector<T>& out) {
  if (items.problem) return items.problem;
  std::vector<T> values;
  for (const auto& item : items.nodes) {
    T value{};
    if (auto problem = read(item, field, value)) return problem;
    values.push_back(value);
  }
  out = std::move(values);
  return std::nullopt;
}

std::vector<std::string> strings(std::span<const std::string_view> views) {
  return {views.begin(), views.end()};
}

}  // namespace

std::string describe(const Range& range) {
  const bool low = std::isfinite(range.low);
  const bool high = std::isfinite(range.high);
  if (low && high && !range.low_is_open && !range.high_is_open) {
    return str(number(range.low), " to ", number(range.high));
  }
  std::string text;
  if (low) text = str(range.low_is_open ? "above " : "at least ", number(range.low));
  if (high) {
    text += str(low ? " and " : "", range.high_is_open ? "below " : "at most ",
                number(range.high));
  }
  return text;
}

std::string_view name_of(Unit unit) noexcept {
  constexpr std::string_view kNames[] = {"",        "bytes",   "steps",
                                         "epochs",  "samples", "batches",
                                         "threads", "layers",  "units"};
  return kNames[static_cast<std::size_t>(unit)];
}

std::string quoted(const std::string& text) {
  using nlohmann::json;
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

Found find_name(const Node& node, const std::vector<std::string>& names) {
  const auto choices = str("one of ", text::join(names, ", "));
  const auto scalar = scalar_of(node, choices);
  if (scalar.problem) return {std::nullopt, scalar.problem};
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == scalar.text) return {i, std::nullopt};
  }
  const auto guess = text::did_you_mean(scalar.text, names);
  return {std::nullopt, str(shown(scalar.text), " is not ", choices, guess)};
}

Items items_of(const Node& node, std::string_view expected) {
  if (node.kind == Node::Kind::sequence) return {node.items, std::nullopt};
  const auto scalar = scalar_of(node, expected);
  if (scalar.problem) return {{}, scalar.problem};
  Items items;
  for (const auto& part : text::split(scalar.text, ',')) {
    items.nodes.push_back({.kind = Node::Kind::scalar,
                           .mark = node.mark,
                           .text = std::string(text::trim(part)),
                           .items = {}});
  }
  return items;
}

Problem read(const Node& node, const Field&, bool& out) {
  const auto scalar = scalar_of(node, "true or false");
  if (scalar.problem) return scalar.problem;
  const auto text = text::lower(scalar.text);
  const bool yes = text == "true" || text == "yes" || text == "on";
  const bool no = text == "false" || text == "no" || text == "off";
  if (!yes && !no) return str(shown(scalar.text), " is neither true nor false");
  out = yes;
  return std::nullopt;
}

Problem read(const Node& node, const Field& field, int& out) {
  return read_integer(node, field, out);
}

Problem read(const Node& node, const Field& field, std::int64_t& out) {
  return read_integer(node, field, out);
}

Problem read(const Node& node, const Field&, std::uint64_t& out) {
  const auto scalar = scalar_of(node, "a whole number");
  if (scalar.problem) return scalar.problem;
  const auto* end = scalar.text.data() + scalar.text.size();
  const auto [stop, error] = std::from_chars(scalar.text.data(), end, out);
  if (error == std::errc{} && stop == end) return std::nullopt;
  const auto value = text::to_integer(scalar.text);  // 1e6
  if (!value) {
    return str(shown(scalar.text), " is not a whole number from 0 to 2^64 - 1");
  }
  if (*value < 0) return out_of_range(scalar.text, at_least(0));
  out = static_cast<std::uint64_t>(*value);
  return std::nullopt;
}

Problem read(const Node& node, const Field& field, double& out) {
  const auto scalar = scalar_of(node, "a number");
  if (scalar.problem) return scalar.problem;
  const auto value = text::to_double(scalar.text);
  if (!value || !std::isfinite(*value)) {
    return str(shown(scalar.text), " is not a number; write one like 0.001 or 1e-3");
  }
  if (!contains(field.range, *value)) return out_of_range(scalar.text, field.range);
  out = *value;
  return std::nullopt;
}

Problem read(const Node& node, const Field& field, std::string& out) {
  if (!field.choices.empty()) {
    const auto found = find_name(node, strings(field.choices));
    if (found.index) out = field.choices[*found.index];
    return found.problem;
  }
  const bool empty = node.kind == Node::Kind::scalar && node.text.empty();
  if (!empty) {
    const auto scalar = scalar_of(node, "a text (quote it if in doubt)");
    if (scalar.problem) return scalar.problem;
  }
  for (const char c : node.text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      return str("has control character ", static_cast<int>(c),
                 "; write it on one line");
    }
  }
  out = node.text;
  return std::nullopt;
}

Problem read(const Node& node, const Field&, units::Duration& out) {
  const auto scalar = scalar_of(node, "a time like 30s, 5min or 2h");
  if (scalar.problem) return scalar.problem;
  const auto value = units::parse_duration(scalar.text);
  if (!value) return str(shown(scalar.text), " is not a time like 30s, 5min or 2h");
  const bool rounded_away = value->count() == 0 &&
                            scalar.text.find_first_of("123456789") != std::string::npos;
  if (rounded_away) return str(shown(scalar.text), " is shorter than 1ms");
  out = *value;
  return std::nullopt;
}

Problem read(const Node& node, const Field& field, std::vector<int>& out) {
  return read_list(items_of(node, "a list like [0, 1]"), field, out);
}

Problem read(const Node& node, const Field& field, std::vector<double>& out) {
  return read_list(items_of(node, "a list like [0.5, 1]"), field, out);
}

Problem read(const Node& node, const Field& field, std::vector<std::string>& out) {
  return read_list(items_of(node, "a list like [a, b]"), field, out);
}

Written write(bool value, const Field&) {
  const std::string text = value ? "true" : "false";
  return {text, text};
}

Written write(int value, const Field& field) {
  return write(static_cast<std::int64_t>(value), field);
}

Written write(std::int64_t value, const Field& field) {
  if (field.word && value == field.word->value) {
    const std::string word(field.word->text);
    return {word, quoted(word)};
  }
  const auto digits = std::to_string(value);
  return {field.unit == Unit::bytes ? units::exact_bytes(value) : digits, digits};
}

Written write(std::uint64_t value, const Field&) {
  return {std::to_string(value), std::to_string(value)};
}

Written write(double value, const Field&) {
  const auto text = text::from_double(value);
  return {text, text};
}

Written write(const std::string& value, const Field&) {
  const auto json = quoted(value);
  return {is_plain(value) ? value : json, json};
}

Written write(units::Duration value, const Field&) {
  const auto text = units::exact_duration(value);
  return {text, quoted(text)};
}

Written write(const std::vector<int>& values, const Field& field) {
  return write_list(values, field);
}

Written write(const std::vector<double>& values, const Field& field) {
  return write_list(values, field);
}

Written write(const std::vector<std::string>& values, const Field& field) {
  return write_list(values, field);
}

Type type_of(const bool&, const Field&) {
  return {"true or false", {}};
}

Type type_of(const int&, const Field& field) {
  return type_of(std::int64_t{}, field);
}

Type type_of(const std::int64_t&, const Field& field) {
  Type type{field.unit == Unit::bytes ? "size" : "integer", {}};
  if (field.word) type.choices.emplace_back(field.word->text);
  return type;
}

Type type_of(const std::uint64_t&, const Field&) {
  return {"integer", {}};
}

Type type_of(const double&, const Field&) {
  return {"number", {}};
}

Type type_of(const std::string&, const Field& field) {
  return {field.choices.empty() ? "text" : "name", strings(field.choices)};
}

Type type_of(const units::Duration&, const Field&) {
  return {"time", {}};
}

Type type_of(const std::vector<double>&, const Field&) {
  return {"list of numbers", {}};
}

Type type_of(const std::vector<std::string>&, const Field&) {
  return {"list of texts", {}};
}

Type type_of(const std::vector<int>&, const Field&) {
  return {"list of integers", {}};
}

}  // namespace lockstep::config::detail
