#include "lockstep/config/detail/reference.h"

#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/config/print.h"

namespace lockstep::config {
namespace {

using detail::Knob;

constexpr std::string_view kOpening = R"(# Configuration reference

Every knob of a recipe. This page is generated from the declarations in
`lockstep/config/`; do not edit it, run

    build/bin/lockstep config reference > docs/reference/config.md

A recipe is YAML (or JSON): sections with keys. A key on the command line
(`optim.lr=3e-4`) wins over the environment (`LOCKSTEP_OPTIM_LR=3e-4`), that over the
recipe, that over the default. `lockstep config show RECIPE` prints every knob with its
value and where it came from. `auto` is filled in for the machine, and `--no-auto` refuses
it.

Sizes are written `25MB` (powers of 1000) or `25MiB` (powers of 1024), times `30s`, `5min`,
`1h30m`, large counts `1e6`, lists `[console, jsonl]` or `console,jsonl`, maps
`{vqa: 1, chexpert: 0.5}`.

*Affects*: **results** changes the numbers that training computes, **speed** only time or
memory, **output** only what is written and shown.
)";

std::string_view name_of(Affects affects) {
  switch (affects) {
    case Affects::results:
      return "results";
    case Affects::speed:
      return "speed";
    case Affects::output:
      return "output";
  }
  return "";
}

std::string values_of(const Knob& knob) {
  std::string values;
  for (const auto& choice : knob.type.choices) {
    values += str(values.empty() ? "" : ", ", "`", choice, "`");
  }
  const auto range = detail::describe(knob.field.range);
  return values + (values.empty() || range.empty() ? "" : ", ") + range;
}

std::string type_of(const Knob& knob) {
  const auto unit = detail::name_of(knob.field.unit);
  return unit.empty() ? knob.type.name : str(knob.type.name, ", ", unit);
}

std::string row(const Knob& knob, const detail::ReferenceColumns& columns) {
  const auto value = knob.write().yaml;
  const auto affects =
      columns.affects ? str(" | ", name_of(knob.field.affects)) : std::string();
  return str("| `", knob.key, "` | ", type_of(knob), " | `", value, "` | ",
             values_of(knob), affects, " | ", knob.field.help, " |\n");
}

}  // namespace

std::string detail::sections_markdown(const Knobs& knobs,
                                      const ReferenceColumns& columns) {
  std::string page;
  for (const auto& section : knobs.sections) {
    page += str(
        "\n## ", section.name, "\n\n", section.help,
        "\n\n| key | type | default | values |", columns.affects ? " affects |" : "",
        " what it does |\n|---|---|---|---|", columns.affects ? "---|" : "", "---|\n");
    for (const auto& knob : knobs.all) {
      if (knob.section == section.name) page += row(knob, columns);
    }
  }
  return page;
}

std::string reference_markdown() {
  Config config;
  return std::string(kOpening) + detail::sections_markdown(detail::knobs_of(config));
}

std::string reference_json() {
  Config config;
  std::string rows;
  for (const auto& knob : detail::knobs_of(config).all) {
    std::string choices;
    for (const auto& choice : knob.type.choices) {
      choices += str(choices.empty() ? "" : ", ", detail::quoted(choice));
    }
    rows += str(rows.empty() ? "" : ",", "\n  {\"key\": ", detail::quoted(knob.key),
                ", \"type\": ", detail::quoted(type_of(knob)),
                ", \"default\": ", knob.write().json, ", \"choices\": [", choices,
                "], \"range\": ", detail::quoted(detail::describe(knob.field.range)),
                ", \"affects\": \"", name_of(knob.field.affects),
                "\", \"help\": ", detail::quoted(std::string(knob.field.help)), "}");
  }
  return str("{\"knobs\": [", rows, "\n]}\n");
}

}  // namespace lockstep::config
