// Parses words into Arguments. No library does it, because a refusal has to say what
// was probably meant, and help and completion come from the same declaration.
#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/command.h"
#include "lockstep/config/load.h"

namespace lockstep::cli {
namespace {

bool is_override(std::string_view word) {
  const auto equals = word.find('=');
  if (equals == std::string_view::npos || equals == 0) return false;
  constexpr std::string_view kKeyLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.";
  // A path with '=' in it has a slash, or a dash, or starts with a dot.
  return word.front() != '.' && word.substr(0, equals).find_first_not_of(kKeyLetters) ==
                                    std::string_view::npos;
}

// Turns "--run_dir" into "--run-dir": users who come from Python type it.
std::string with_dashes(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

bool looks_like_option(const std::string& word) {
  return word.size() > 1 && word.front() == '-';
}

// Returns the option of "--name=value"; null if the command does not have it.
const Option* known_option(const Command& command, const std::string& word) {
  const auto name = word.substr(0, word.find('='));
  for (const auto& option : command.options) {
    if (with_dashes(name) == option.name) return &option;
    if (!option.shorthand.empty() && name == option.shorthand) return &option;
  }
  return nullptr;
}

std::string see_help(const Command& command) {
  return str("; see `lockstep ", command.name, " --help`");
}

}  // namespace

bool Arguments::has(std::string_view option) const {
  return options_.find(option) != options_.end();
}

std::optional<std::string> Arguments::value(std::string_view option) const {
  const auto found = options_.find(option);
  return found == options_.end() ? std::nullopt : std::optional(found->second.back());
}

std::vector<std::string> Arguments::values(std::string_view option) const {
  const auto found = options_.find(option);
  return found == options_.end() ? std::vector<std::string>() : found->second;
}

std::optional<long long> Arguments::number(std::string_view option,
                                           long long least) const {
  const auto given = value(option);
  if (!given) return std::nullopt;
  const auto number = text::to_integer(*given);
  if (!number || *number < least) {
    throw Error(Fault::config, option, ": '", *given,
                "' is not a whole number of at least ", least);
  }
  return number;
}

std::optional<std::string> Arguments::operand(std::string_view name) const {
  const auto found = operands_.find(name);
  return found == operands_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<config::Override> Arguments::overrides() const {
  std::vector<config::Override> result;
  for (const auto& [key, value] : assignments_) result.push_back({key, value});
  return result;
}

class Parser {
 public:
  Parser(const Command& command, const std::vector<std::string>& words)
      : command_(command), words_(words) {}

  Arguments parse() {
    if (command_.takes_program) return parse_with_program();
    bool options_end = false;
    for (at_ = 0; at_ < words_.size(); ++at_) {
      const auto& word = words_[at_];
      if (!options_end && word == "--") {
        options_end = true;
      } else if (!options_end && looks_like_option(word)) {
        take_option(word);
      } else if (command_.takes_overrides && is_override(word)) {
        auto [key, value] = config::parse_override(word);
        result_.assignments_.emplace_back(std::move(key), std::move(value));
      } else {
        take_operand(word);
      }
    }
    check_operands();
    return std::move(result_);
  }

 private:
  Arguments parse_with_program() {
    const auto end = own_words(command_, words_);
    for (at_ = 0; at_ < end; ++at_) take_option(words_[at_]);
    const bool dashes = end < words_.size() && words_[end] == "--";
    result_.program_.assign(
        words_.begin() + static_cast<std::ptrdiff_t>(end + (dashes ? 1 : 0)),
        words_.end());
    next_operand_ = std::min(command_.operands.size(), result_.program_.size());
    check_operands();
    return std::move(result_);
  }

  void take_option(const std::string& word) {
    const auto equals = word.find('=');
    const auto name = word.substr(0, equals);
    const Option& option = find_option(name);
    if (!option.refusal.empty()) throw Error(Fault::config, name, " ", option.refusal);
    std::string value;
    if (option.value.empty()) {
      if (equals != std::string::npos) {
        throw Error(Fault::config, name, " takes no value", see_help(command_));
      }
    } else if (equals != std::string::npos) {
      value = word.substr(equals + 1);
    } else if (at_ + 1 < words_.size()) {
      value = words_[++at_];
    } else {
      throw Error(Fault::config, name, " needs a value: ", name, " ", option.value);
    }
    if (!option.free_text) check_choice(option.name, value, option.choices);
    result_.options_[option.name].push_back(value);
  }

  const Option& find_option(const std::string& name) const {
    if (const auto* option = known_option(command_, name)) return *option;
    std::vector<std::string> known{"--help", "--no-color"};
    for (const auto& option : command_.options) {
      if (option.refusal.empty()) known.push_back(option.name);
    }
    auto hint = text::did_you_mean(with_dashes(name), known);
    if (command_.takes_overrides && name.find('.') != std::string::npos) {
      hint = str("; a knob is set without the dashes: ",
                 name.substr(name.find_first_not_of('-')), "=VALUE");
    }
    throw Error(Fault::config, "unknown option '", name, "' of `lockstep ",
                command_.name, "`", hint.empty() ? see_help(command_) : hint);
  }

  static void check_choice(const std::string& of, const std::string& value,
                           const std::vector<std::string>& choices) {
    if (choices.empty()) return;
    if (std::find(choices.begin(), choices.end(), value) != choices.end()) return;
    throw Error(Fault::config, of, ": '", value, "' is not one of ",
                text::join(choices, ", "), text::did_you_mean(value, choices));
  }

  void take_operand(const std::string& word) {
    if (next_operand_ > 0 && next_operand_ == command_.operands.size() &&
        command_.operands.back().repeats) {
      result_.repeated_.push_back(word);
      return;
    }
    if (next_operand_ >= command_.operands.size()) {
      throw Error(
          Fault::config, "unexpected '", word, "' after `lockstep ", command_.name, "`",
          command_.takes_overrides ? "; a knob is set as section.key=value" : "",
          see_help(command_));
    }
    const auto& operand = command_.operands[next_operand_++];
    check_choice(operand.name, word, operand.choices);
    result_.operands_[operand.name] = word;
    if (operand.repeats) result_.repeated_.push_back(word);
  }

  void check_operands() const {
    for (auto i = next_operand_; i < command_.operands.size(); ++i) {
      if (!command_.operands[i].required) continue;
      throw Error(Fault::config, command_.operands[i].name,
                  " is missing: ", command_.usage);
    }
  }

  const Command& command_;
  const std::vector<std::string>& words_;
  std::size_t at_ = 0;
  std::size_t next_operand_ = 0;
  Arguments result_;
};

std::size_t own_words(const Command& command, const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--") return i;
    if (!command.takes_program) continue;
    if (!looks_like_option(words[i])) return i;
    const auto* option = known_option(command, words[i]);
    const bool has_value = option != nullptr && !option->value.empty();
    if (has_value && words[i].find('=') == std::string::npos) ++i;
  }
  return words.size();
}

Arguments parse(const Command& command, const std::vector<std::string>& words) {
  return Parser(command, words).parse();
}

}  // namespace lockstep::cli
