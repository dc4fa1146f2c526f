#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/units.h"
#include "lockstep/config/auto.h"
#include "lockstep/config/detail/yaml.h"
#include "lockstep/config/enums.h"
#include "lockstep/config/field.h"

// Each type of knob has one overload of read(), write() and type_of(). A new type of
// knob needs these three and nothing else.
namespace lockstep::config::detail {

// The problem with a value and its remedy, and the place if it is not the whole value;
// empty if the value was taken.
struct Problem : std::optional<std::string> {
  using std::optional<std::string>::optional;

  std::optional<Mark> mark = {};
};

Problem read(const Node& node, const Field& field, bool& out);
Problem read(const Node& node, const Field& field, int& out);
Problem read(const Node& node, const Field& field, std::int64_t& out);
Problem read(const Node& node, const Field& field, std::uint64_t& out);
Problem read(const Node& node, const Field& field, double& out);
Problem read(const Node& node, const Field& field, std::string& out);
Problem read(const Node& node, const Field& field, units::Duration& out);
Problem read(const Node& node, const Field& field, std::vector<int>& out);
Problem read(const Node& node, const Field& field, std::vector<double>& out);
Problem read(const Node& node, const Field& field, std::vector<std::string>& out);

// A value as a recipe spells it, and as JSON.
struct Written {
  std::string yaml;
  std::string json;
};

Written write(bool value, const Field& field);
Written write(int value, const Field& field);
Written write(std::int64_t value, const Field& field);
Written write(std::uint64_t value, const Field& field);
Written write(double value, const Field& field);
Written write(const std::string& value, const Field& field);
Written write(units::Duration value, const Field& field);
Written write(const std::vector<int>& values, const Field& field);
Written write(const std::vector<double>& values, const Field& field);
Written write(const std::vector<std::string>& values, const Field& field);

// A knob's type on the reference page.
struct Type {
  std::string name;
  std::vector<std::string> choices;
};

Type type_of(const bool&, const Field& field);
Type type_of(const int&, const Field& field);
Type type_of(const std::int64_t&, const Field& field);
Type type_of(const std::uint64_t&, const Field& field);
Type type_of(const double&, const Field& field);
Type type_of(const std::string&, const Field& field);
Type type_of(const units::Duration&, const Field& field);
Type type_of(const std::vector<int>&, const Field& field);
Type type_of(const std::vector<double>&, const Field& field);
Type type_of(const std::vector<std::string>&, const Field& field);

// Returns "at least 0 and below 1", "" if every value is in it.
std::string describe(const Range& range);
std::string_view name_of(Unit unit) noexcept;

// Returns JSON's form of a text, which is YAML's double-quoted form, too.
std::string quoted(const std::string& text);

// The index of the node's text among the names.
struct Found {
  std::optional<std::size_t> index;
  Problem problem;
};
Found find_name(const Node& node, const std::vector<std::string>& names);

// The items of a list: [a, b] or the scalar "a,b".
struct Items {
  std::vector<Node> nodes;
  Problem problem;
};
Items items_of(const Node& node, std::string_view expected);

template <NamedEnum E>
std::vector<std::string> names_in(E e) {
  const auto names = names_of(e);
  return {names.begin(), names.end()};
}

template <NamedEnum E>
Problem read(const Node& node, const Field&, E& out) {
  const auto found = find_name(node, names_in(out));
  if (found.index) out = static_cast<E>(*found.index);
  return found.problem;
}

template <NamedEnum E>
Written write(E value, const Field&) {
  const std::string name(config::name_of(value));
  return {name, quoted(name)};
}

template <NamedEnum E>
Type type_of(const E& e, const Field&) {
  return {"name", names_in(e)};
}

template <NamedEnum E>
Problem read(const Node& node, const Field& field, std::vector<E>& out) {
  const auto names = names_in(E{});
  const auto items = items_of(node, "a list like [" + names[0] + ", " + names[1] + "]");
  if (items.problem) return items.problem;
  std::vector<E> values;
  for (const auto& item : items.nodes) {
    E value{};
    if (auto problem = read(item, field, value)) return problem;
    for (const auto other : values) {
      if (other == value) return "'" + item.text + "' appears twice; name it once";
    }
    values.push_back(value);
  }
  out = std::move(values);
  return std::nullopt;
}

template <typename T>
Written write_list(const std::vector<T>& values, const Field& field) {
  Written all{"[", "["};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto one = write(values[i], field);
    all.yaml += (i > 0 ? ", " : "") + one.yaml;
    all.json += (i > 0 ? ", " : "") + one.json;
  }
  return {all.yaml + "]", all.json + "]"};
}

template <NamedEnum E>
Written write(const std::vector<E>& values, const Field& field) {
  return write_list(values, field);
}

template <NamedEnum E>
Type type_of(const std::vector<E>&, const Field&) {
  return {"list of names", names_in(E{})};
}

// The entries of a map, {a: 1, b: 2}: names, each once, with their values.
struct Entries {
  std::vector<std::pair<std::string, Node>> all;
  Problem problem;
};
Entries entries_of(const Node& node, std::string_view expected);

template <typename T>
Problem read(const Node& node, const Field& field, std::map<std::string, T>& out) {
  constexpr bool kNames = NamedEnum<T>;
  const auto entries =
      entries_of(node, kNames ? "a map like {a: regression}" : "a map like {a: 0.5}");
  if (entries.problem) return entries.problem;
  std::map<std::string, T> values;
  for (const auto& [name, value] : entries.all) {
    if (auto problem = read(value, field, values[name])) {
      Problem of_entry("'" + name + "': " + *problem);
      of_entry.mark = value.mark;
      return of_entry;
    }
  }
  out = std::move(values);
  return std::nullopt;
}

template <typename T>
Written write(const std::map<std::string, T>& values, const Field& field) {
  Written all;
  for (const auto& [name, value] : values) {
    const auto key = write(name, Field{});
    const auto one = write(value, field);
    const auto* comma = all.yaml.empty() ? "" : ", ";
    all.yaml += comma + key.yaml + ": " + one.yaml;
    all.json += comma + key.json + ": " + one.json;
  }
  return {"{" + all.yaml + "}", "{" + all.json + "}"};
}

template <typename T>
Type type_of(const std::map<std::string, T>&, const Field& field) {
  const auto of_values = type_of(T{}, field);
  return {"map to " + of_values.name, of_values.choices};
}

template <typename T>
Problem read(const Node& node, const Field& field, Auto<T>& out) {
  if (node.kind == Node::Kind::scalar && node.text == "auto") {
    out = Auto<T>();
    return std::nullopt;
  }
  T value{};
  if (auto problem = read(node, field, value)) return *problem + " (or auto)";
  out = value;
  return std::nullopt;
}

template <typename T>
Written write(const Auto<T>& value, const Field& field) {
  if (value.is_auto()) return {"auto", quoted("auto")};
  return write(value.value(), field);
}

template <typename T>
Type type_of(const Auto<T>&, const Field& field) {
  auto type = type_of(T{}, field);
  type.choices.insert(type.choices.begin(), "auto");
  return type;
}

}  // namespace lockstep::config::detail
