#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace lockstep::run {

// One named value of a line in events.jsonl or metrics.jsonl.
struct NamedValue {
  std::string name;
  std::variant<std::int64_t, double, std::string, bool> value;
};

// Returns one JSON object on one line, fields in this order. A double is written so
// that it reads back to the same bits; JSON has no NaN and no infinities, so these are
// the strings "NaN", "Infinity" and "-Infinity". Text that is not UTF-8 gets
// replacement characters.
std::string to_json_line(std::span<const NamedValue> fields);

// Parses such a line; returns nothing if `line` is not one whole object (a line torn by
// a crash). Lists and objects inside it arrive as their JSON text.
std::optional<std::vector<NamedValue>> parse_json_line(std::string_view line);

// Returns the value as a number: "NaN" and its like are, true and other text are not.
std::optional<double> number_of(const NamedValue& field);

}  // namespace lockstep::run
