// Files of knobs, whatever they are for: sections with keys, each with its place.
#include "lockstep/config/detail/loading.h"

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/text.h"

namespace lockstep::config::detail {
namespace {

std::string place(const std::string& file, const Mark& mark) {
  return str(file, ":", mark.line, ":", mark.column);
}

// A map of a recipe.
struct MapInFile {
  const Node& node;
  const std::string& file;
};

// Visits the entries of a map once each; a key that is no text, or is there for the
// second time, is a problem.
template <typename Visit>
void for_each_entry(const MapInFile& map, Problems& problems, const Visit& visit) {
  const auto& [node, file] = map;
  std::map<std::string, int> first_lines;
  for (std::size_t i = 0; i + 1 < node.items.size() && !problems.are_many(); i += 2) {
    const Node& key = node.items[i];
    const auto where = place(file, key.mark);
    if (key.kind != Node::Kind::scalar) {
      problems.add(where, "", str("a key is a name, not ", name_of(key.kind)));
      continue;
    }
    const auto [first, is_new] = first_lines.emplace(key.text, key.mark.line);
    if (!is_new) {
      problems.add(where, "",
                   str("'", key.text, "' appears twice: in line ", first->second,
                       " and in line ", key.mark.line, "; remove one"));
      continue;
    }
    visit(key, node.items[i + 1]);
  }
}

void apply_section(Loading& loading, const std::string& section,
                   const MapInFile& fields) {
  const auto& file = fields.file;
  for_each_entry(fields, loading.problems, [&](const Node& key, const Node& value) {
    const auto* knob = loading.knobs.find(str(section, ".", key.text));
    if (knob == nullptr) {
      const auto problem = unknown_key(loading.knobs, section, key.text);
      return loading.problems.add(place(file, key.mark), "", problem);
    }
    // An empty value has no place of its own.
    const auto& mark = value.kind == Node::Kind::null ? key.mark : value.mark;
    loading.assign(*knob, value, {Origin::recipe, place(file, mark)});
  });
}

void apply_recipe(Loading& loading, const std::string& file, const Node& root) {
  if (root.kind == Node::Kind::null) {
    throw Error(Fault::config, file,
                ":1:1: the recipe is empty; write at least one section, "
                "for example 'optim: {lr: 1e-3}'");
  }
  if (root.kind != Node::Kind::map) {
    throw Error(Fault::config, place(file, root.mark), ": the recipe is ",
                name_of(root.kind),
                "; write sections, for example 'optim: {lr: 1e-3}'");
  }
  for_each_entry({root, file}, loading.problems,
                 [&](const Node& key, const Node& fields) {
                   const auto where = place(file, key.mark);
                   if (!loading.knobs.has_section(key.text)) {
                     const auto problem = unknown_section(loading.knobs, key.text);
                     loading.problems.add(where, "", problem);
                   } else if (fields.kind != Node::Kind::map) {
                     const auto problem =
                         str("is ", name_of(fields.kind), "; a section has keys: ",
                             text::join(loading.knobs.names_in(key.text), ", "));
                     loading.problems.add(where, key.text, problem);
                   } else {
                     apply_section(loading, key.text, {fields, file});
                   }
                 });
}

}  // namespace

Loading::Loading(std::map<std::string, Source>& where, Knobs all)
    : sources(where), knobs(std::move(all)) {
  for (const auto& knob : knobs.all) sources.try_emplace(knob.key);
}

void Loading::assign(const Knob& knob, const Node& value, Source source) {
  if (const auto problem = knob.read(value)) {
    const bool inside = problem.mark && source.origin == Origin::recipe;
    problems.add(inside ? place(file, *problem.mark) : place_of(source), knob.key,
                 *problem);
    return;
  }
  sources[knob.key] = std::move(source);
}

void Loading::assign_text(const Knob& knob, std::string_view text,
                          const Source& source) {
  try {
    assign(knob, parse_value(text), source);
  } catch (const SyntaxError& error) {
    problems.add(place_of(source), knob.key, error.message);
  }
}

void apply_text(Loading& loading, const std::string& file, std::string_view content) {
  loading.file = file;
  try {
    apply_recipe(loading, file, parse_yaml(content));
  } catch (const SyntaxError& error) {
    throw Error(Fault::config, place(file, error.mark), ": ", error.message);
  }
}

std::string unknown(const Knobs& knobs, std::string_view key) {
  if (knobs.has_section(key)) {
    const auto names = knobs.names_in(key);
    return str("'", key, "' is a section; set its keys one by one: ", key, ".",
               text::join(names, str(", ", key, ".")));
  }
  const auto dot = key.find('.');
  const auto section = key.substr(0, dot);
  if (dot == std::string_view::npos) return unknown_section(knobs, key);
  if (!knobs.has_section(section)) return unknown_section_of(knobs, key);
  return unknown_key(knobs, section, key.substr(dot + 1));
}

void apply_override(Loading& loading, const Override& given, const Source& source) {
  if (const auto* knob = loading.knobs.find(given.key)) {
    loading.assign_text(*knob, given.value, source);
  } else {
    loading.problems.add(place_of(source), "", unknown(loading.knobs, given.key));
  }
}

}  // namespace lockstep::config::detail
