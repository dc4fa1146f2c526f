// lockstep completion SHELL: a script for the shell, from the table of commands and the
// list of knobs.
#include <ostream>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/command.h"
#include "lockstep/config/load.h"

namespace lockstep::cli {
namespace {

// Returns the options that a user may use.
std::vector<Option> offered(const Command& command) {
  auto options = command.options;
  std::erase_if(options, [](const Option& option) { return !option.refusal.empty(); });
  return options;
}

std::vector<std::string> option_words(const Command& command) {
  std::vector<std::string> words;
  for (const auto& option : offered(command)) words.push_back(option.name);
  words.insert(words.end(), {"--help", "--no-color"});
  return words;
}

std::vector<std::string> operand_words(const Command& command) {
  std::vector<std::string> words;
  for (const auto& operand : command.operands) {
    words.insert(words.end(), operand.choices.begin(), operand.choices.end());
  }
  return words;
}

// Returns the widest completion of the operands.
Completes operand_paths(const Command& command) {
  auto widest = Completes::nothing;
  for (const auto& operand : command.operands) {
    if (operand.completes == Completes::file) return Completes::file;
    if (operand.completes == Completes::directory) widest = Completes::directory;
  }
  return widest;
}

std::string knobs() {
  std::vector<std::string> words;
  for (const auto& key : config::keys()) words.push_back(key + "=");
  return text::join(words, " ");
}

std::string command_names() {
  std::vector<std::string> names;
  for (const auto& command : commands()) names.push_back(command.name);
  return text::join(names, " ");
}

// Summaries and help texts hold backticks and apostrophes.
std::string without_quotes(std::string text) {
  std::erase_if(text, [](char c) { return c == '\'' || c == '`' || c == '"'; });
  return text;
}

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at)) {
    text.replace(at, what.size(), by);
    at += by.size();
  }
  return text;
}

// bash ------------------------------------------------------------------------------

std::string bash_paths(Completes completes) {
  if (completes == Completes::file) return "; compgen -f -- \"$cur\"";
  if (completes == Completes::directory) return "; compgen -d -- \"$cur\"";
  return "";
}

// mapfile, not a plain array: names of files may hold spaces.
std::string bash_reply(const std::vector<std::string>& words, Completes completes) {
  return "mapfile -t COMPREPLY < <(compgen -W \"" + text::join(words, " ") +
         "\" -- \"$cur\"" + bash_paths(completes) + ")";
}

std::string bash_values(const Command& command) {
  std::string cases;
  for (const auto& option : offered(command)) {
    if (option.value.empty()) continue;
    const auto names =
        option.shorthand.empty() ? option.name : option.name + "|" + option.shorthand;
    cases += "        " + names + ") " + bash_reply(option.choices, option.completes) +
             "; return ;;\n";
  }
  return cases.empty() ? "" : "      case \"$prev\" in\n" + cases + "      esac\n";
}

std::string bash_command(const Command& command) {
  std::string script = "    " + command.name + ")\n" + bash_values(command) +
                       "      if [[ $cur == -* ]]; then\n        " +
                       bash_reply(option_words(command), Completes::nothing) +
                       "\n        return\n      fi\n";
  if (command.takes_overrides) {
    script += "      mapfile -t COMPREPLY < <(compgen -W \"" +
              text::join(operand_words(command), " ") +
              " $knobs\" -- \"$cur\")\n"
              "      if [[ -n $cur && ${#COMPREPLY[@]} -gt 0 ]]; then\n"
              "        [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null\n"
              "        return\n      fi\n";
  }
  return script + "      compopt -o filenames 2>/dev/null\n      " +
         bash_reply(operand_words(command), operand_paths(command)) + "\n      ;;\n";
}

std::string bash_script() {
  std::string script =
      "# bash completion for lockstep: source it, or put it into\n"
      "# ~/.local/share/bash-completion/completions/lockstep\n"
      "_lockstep() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
      "  local knobs=\"" +
      knobs() +
      "\"\n"
      "  COMPREPLY=()\n"
      "  if [[ $cur == '=' || $prev == '=' ]]; then return; fi\n"
      "  if (( COMP_CWORD == 1 )); then\n"
      "    COMPREPLY=($(compgen -W \"" +
      command_names() +
      " --help --version\" -- \"$cur\"))\n    return\n  fi\n"
      "  case ${COMP_WORDS[1]} in\n";
  for (const auto& command : commands()) script += bash_command(command);
  return script + "  esac\n}\ncomplete -F _lockstep lockstep\n";
}

// zsh -------------------------------------------------------------------------------

std::string zsh_text(const std::string& text) {
  auto result = replaced(without_quotes(text), "[", "(");
  return replaced(replaced(result, "]", ")"), ":", ",");
}

std::string zsh_action(const std::vector<std::string>& choices, Completes completes) {
  if (!choices.empty()) return "(" + text::join(choices, " ") + ")";
  if (completes == Completes::file) return "_files";
  if (completes == Completes::directory) return "_files -/";
  return "";
}

std::string zsh_option(const Option& option, const std::string& name) {
  std::string spec = "'" + name + "[" + zsh_text(option.help) + "]";
  if (!option.value.empty()) {
    spec += ":" + zsh_text(option.value) + ":" +
            zsh_action(option.choices, option.completes);
  }
  return " \\\n        " + spec + "'";
}

std::string zsh_command(const Command& command) {
  std::string script = "    " + command.name + ")\n      _arguments";
  for (const auto& option : offered(command)) {
    script += zsh_option(option, option.name);
    if (!option.shorthand.empty()) script += zsh_option(option, option.shorthand);
  }
  script += " \\\n        '--help[Shows help.]'";
  for (const auto& operand : command.operands) {
    script += " \\\n        ':" + zsh_text(operand.name) + ":" +
              zsh_action(operand.choices, operand.completes) + "'";
  }
  if (command.takes_overrides) {
    script += " \\\n        '*:section.key=value:_lockstep_knobs'";
  }
  return script + "\n      ;;\n";
}

std::string zsh_script() {
  std::string script =
      "#compdef lockstep\n# zsh completion for lockstep: put it as _lockstep into a "
      "directory of $fpath\n"
      "_lockstep_knobs() {\n  local -a knobs=(" +
      knobs() +
      ")\n"
      "  compadd -S '' -- $knobs\n}\n"
      "_lockstep() {\n  local -a commands=(\n";
  for (const auto& command : commands()) {
    script += "    '" + command.name + ":" + zsh_text(command.summary) + "'\n";
  }
  script +=
      "  )\n  if (( CURRENT == 2 )); then\n    _describe command commands\n"
      "    return\n  fi\n  local command=${words[2]}\n  shift words\n"
      "  (( CURRENT-- ))\n  case $command in\n";
  for (const auto& command : commands()) script += zsh_command(command);
  return script + "  esac\n}\n_lockstep \"$@\"\n";
}

// fish ------------------------------------------------------------------------------

std::string fish_paths(Completes completes) {
  if (completes == Completes::file) return " -r -F";
  if (completes == Completes::directory)
    return " -x -a '(__fish_complete_directories)'";
  return "";
}

std::string fish_option(const Option& option) {
  std::string line = " -l " + option.name.substr(2);
  if (!option.shorthand.empty()) line += " -s " + option.shorthand.substr(1);
  if (!option.choices.empty()) {
    line += " -x -a '" + text::join(option.choices, " ") + "'";
  } else if (!option.value.empty()) {
    line +=
        option.completes == Completes::nothing ? " -x" : fish_paths(option.completes);
  }
  return line + " -d '" + without_quotes(option.help) + "'";
}

std::string fish_command(const Command& command) {
  const std::string when =
      "complete -c lockstep -n '__fish_seen_subcommand_from " + command.name + "'";
  std::string script = "complete -c lockstep -n __fish_use_subcommand -f -a " +
                       command.name + " -d '" + without_quotes(command.summary) + "'\n";
  for (const auto& option : offered(command))
    script += when + fish_option(option) + "\n";
  script += when + " -l help -s h -d 'Shows help.'\n";
  const auto words = operand_words(command);
  if (!words.empty()) script += when + " -f -a '" + text::join(words, " ") + "'\n";
  if (operand_paths(command) != Completes::nothing) script += when + " -F\n";
  if (command.takes_overrides) script += when + " -a '" + knobs() + "'\n";
  return script;
}

std::string fish_script() {
  std::string script =
      "# fish completion for lockstep: put it into\n"
      "# ~/.config/fish/completions/lockstep.fish\ncomplete -c lockstep -f\n";
  for (const auto& command : commands()) script += fish_command(command);
  return script;
}

int completion(const Arguments& arguments, Context& context) {
  const auto shell = *arguments.operand("SHELL");
  context.out << (shell == "bash"  ? bash_script()
                  : shell == "zsh" ? zsh_script()
                                   : fish_script());
  return kExitOk;
}

}  // namespace

Command completion_command() {
  return {.name = "completion",
          .summary = "Print a completion script for a shell.",
          .usage = "lockstep completion bash|zsh|fish",
          .details = "  source <(lockstep completion bash)\n",
          .operands = {{.name = "SHELL",
                        .help = "bash, zsh or fish.",
                        .choices = {"bash", "zsh", "fish"}}},
          .run = completion};
}

}  // namespace lockstep::cli
