// lockstep help [COMMAND], and the text of --help: both from the table of commands.
#include <ostream>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/command.h"

namespace lockstep::cli {
namespace {

// Returns "  name  text" lines with the texts below each other, wrapped at 88 columns.
std::string two_columns(const std::vector<std::pair<std::string, std::string>>& rows) {
  constexpr std::size_t kWidth = 88;
  std::size_t left = 0;
  for (const auto& [name, about] : rows) left = std::max(left, text::columns(name));
  std::string result;
  for (const auto& [name, about] : rows) {
    std::string line = "  " + name + std::string(left - text::columns(name) + 2, ' ');
    std::size_t column = left + 4;
    bool first = true;
    for (const auto& word : text::split(about, ' ')) {
      if (!first && column + 1 + text::columns(word) > kWidth) {
        line += "\n" + std::string(left + 4, ' ');
        column = left + 4;
        first = true;
      }
      line += (first ? "" : " ") + word;
      column += text::columns(word) + (first ? 0 : 1);
      first = false;
    }
    result += line + "\n";
  }
  return result;
}

std::string spelled(const Option& option) {
  std::string text = option.shorthand.empty() ? "    " : option.shorthand + ", ";
  text += option.name;
  if (!option.value.empty()) text += " " + option.value;
  return text;
}

int help(const Arguments& arguments, Context& context) {
  const auto name = arguments.operand("COMMAND");
  if (!name) {
    context.out << overview();
    return kExitOk;
  }
  for (const auto& command : commands()) {
    if (command.name == *name) context.out << help_for(command);
  }
  return kExitOk;
}

}  // namespace

std::string overview() {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const auto& command : commands())
    rows.emplace_back(command.name, command.summary);
  return "Train a model from a recipe and see what it is doing.\n\n"
         "  lockstep train recipes/fashion_mnist.yaml              train\n"
         "  lockstep train recipes/fashion_mnist.yaml optim.lr=3e-4   with another "
         "knob\n"
         "  lockstep launch --nproc-per-node 4 ./my_program           any program, as "
         "4 "
         "ranks\n"
         "  lockstep status                                           how the newest "
         "run "
         "is\n\n"
         "Usage: lockstep COMMAND [options]\n\nCommands:\n" +
         two_columns(rows) +
         "\n"
         "`lockstep help COMMAND` says more about one. Every command takes --help and\n"
         "--no-color. Exit status: 0 ok, 1 training failed, 2 wrong usage or config,\n"
         "3 hardware, a file or a program is missing, 75 stopped and resumable,\n"
         "128+N ended by signal N.\n";
}

std::string help_for(const Command& command) {
  std::string result = command.summary + "\n\nUsage: " + command.usage + "\n";
  if (!command.details.empty()) result += "\n" + command.details;
  std::vector<std::pair<std::string, std::string>> rows;
  for (const auto& operand : command.operands) {
    rows.emplace_back(operand.name, operand.help);
  }
  if (command.takes_overrides) {
    rows.emplace_back("section.key=value",
                      "Set a knob; `lockstep config reference` lists all of them.");
  }
  if (!rows.empty()) result += "\nArguments:\n" + two_columns(rows);
  rows.clear();
  for (const auto& option : command.options) {
    if (option.refusal.empty()) rows.emplace_back(spelled(option), option.help);
  }
  rows.emplace_back("-h, --help", "Show this help.");
  rows.emplace_back("    --no-color",
                    "No colours (also: NO_COLOR in the environment).");
  return result + "\nOptions:\n" + two_columns(rows);
}

Command help_command() {
  return {.name = "help",
          .summary = "Explain a command.",
          .usage = "lockstep help [COMMAND]",
          .details = "",
          .operands = {{.name = "COMMAND",
                        .help = "The command; without it, the list of all.",
                        .required = false}},
          .options = {},
          .run = help};
}

}  // namespace lockstep::cli
