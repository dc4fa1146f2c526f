// The program: find the command, run it, turn its errors into one line and a status.
#include <algorithm>
#include <new>
#include <ostream>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/detail/output.h"

namespace lockstep::cli {
namespace {

const Command& find_command(const std::string& name) {
  std::vector<std::string> known;
  for (const auto& command : commands()) {
    if (command.name == name) return command;
    known.push_back(command.name);
  }
  const auto hint = text::did_you_mean(name, known);
  throw Error(Fault::config, "unknown command '", name, "'",
              hint.empty() ? "; `lockstep help` lists them" : hint);
}

// The options that every command has.
struct Common {
  bool help = false;
  bool no_color = false;
};

// Returns where our own words end: the words behind belong to a program that we are to
// start, and so do its --help and its --no-color.
std::size_t end_of_own(const std::vector<std::string>& words) {
  const auto name = std::find_if(words.begin(), words.end(), [](const auto& word) {
    return word.empty() || word.front() != '-';
  });
  for (const auto& command : commands()) {
    if (name == words.end() || *name != command.name) continue;
    const auto before = static_cast<std::size_t>(name - words.begin()) + 1;
    return before + own_words(command, {name + 1, words.end()});
  }
  return static_cast<std::size_t>(std::find(words.begin(), words.end(), "--") -
                                  words.begin());
}

// Takes the common options out of `words`.
Common take_common(std::vector<std::string>& words) {
  Common common;
  const auto end = words.begin() + static_cast<std::ptrdiff_t>(end_of_own(words));
  const auto kept = std::remove_if(words.begin(), end, [&](const std::string& word) {
    common.help |= word == "--help" || word == "-h";
    common.no_color |= word == "--no-color";
    return word == "--help" || word == "-h" || word == "--no-color";
  });
  words.erase(kept, end);
  return common;
}

int dispatch(std::vector<std::string> words, Context& context) {
  const auto common = take_common(words);
  if (common.no_color) context.color_out = context.color_err = false;
  if (words.empty()) {
    // Help that was requested is a result; without it, it is a complaint.
    (common.help ? context.out : context.err) << overview();
    return common.help ? kExitOk : kExitUsage;
  }
  if (words[0] == "--version") words[0] = "version";
  if (words[0].front() == '-') {
    throw Error(Fault::config, "unknown option '", words[0],
                "'; a command comes first: `lockstep help` lists them");
  }
  const Command& command = find_command(words[0]);
  if (common.help) {
    context.out << help_for(command);
    return kExitOk;
  }
  return command.run(parse(command, {words.begin() + 1, words.end()}), context);
}

}  // namespace

std::optional<std::string> Context::variable(std::string_view name) const {
  return jobs::find_variable(environment, name);
}

const std::vector<Command>& commands() {
  static const std::vector<Command> table = [] {
    std::vector<Command> all = {
#define LOCKSTEP_ROW(name) name##_command(),
        LOCKSTEP_COMMANDS(LOCKSTEP_ROW)
#undef LOCKSTEP_ROW
    };
    // `help` takes the name of any command, itself included.
    for (const auto& command : all) {
      all.back().operands[0].choices.push_back(command.name);
    }
    return all;
  }();
  return table;
}

int run(const std::vector<std::string>& words, Context& context) {
  try {
    return dispatch(words, context);
  } catch (const Error& error) {
    print_error(context, error.what());
    return shell_status(error.fault());
  } catch (const std::bad_alloc&) {
    print_error(context, "out of memory");
    return kExitEnvironment;
  } catch (const std::exception& error) {
    print_error(context,
                str("internal: ", error.what(), "; this is a bug, please report it"));
    return kExitFailed;
  }
}

}  // namespace lockstep::cli
