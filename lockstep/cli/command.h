#pragma once

#include <cstddef>
#include <functional>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::config {
struct Override;
}

// A subcommand is data plus one function: parsing, help, shell completion and "did you
// mean" are all derived from the declaration, so they cannot disagree.
namespace lockstep::cli {

// The completion that a shell offers for a value that has no fixed choices.
enum class Completes { nothing, file, directory };

// "--ranks N": `value` is the placeholder, "" for a switch. A value outside `choices`
// is refused, unless `free_text` says that they are only the common ones.
struct Option {
  std::string name;            // "--ranks"
  std::string shorthand = {};  // "-q"
  std::string value = {};
  std::string help = {};
  std::vector<std::string> choices = {};
  bool free_text = false;
  Completes completes = Completes::nothing;
  // If not empty, this is an option of a related program that users will try. It is
  // refused with this sentence and is in no help.
  std::string refusal = {};
};

// A word without a dash: "RECIPE".
struct Operand {
  std::string name;
  std::string help = {};
  bool required = true;
  std::vector<std::string> choices =
      {};  // any other value is refused, with a suggestion
  Completes completes = Completes::nothing;
  bool repeats = false;  // of the last one only: takes all words that are left
};

// The typed words, checked against the declaration.
class Arguments {
 public:
  // These take the long name, dashes included.
  bool has(std::string_view option) const;
  std::optional<std::string> value(
      std::string_view option) const;  // the last one given
  // Returns all values of an option that may be given several times, in order.
  std::vector<std::string> values(std::string_view option) const;
  // Throws Fault::config, naming the option, when it is not a whole number >= `least`.
  std::optional<long long> number(std::string_view option, long long least) const;

  // Takes the declared name; returns nothing when it was optional and left out.
  std::optional<std::string> operand(std::string_view name) const;

  // Returns all words of the operand that repeats, in order.
  const std::vector<std::string>& repeated() const noexcept { return repeated_; }

  // Returns the program and its arguments, of a command that takes one.
  const std::vector<std::string>& program() const noexcept { return program_; }

  // Returns the section.key=value words, in order. Using it needs config's header.
  std::vector<config::Override> overrides() const;

 private:
  friend class Parser;
  std::map<std::string, std::vector<std::string>, std::less<>> options_;
  std::map<std::string, std::string, std::less<>> operands_;
  std::vector<std::pair<std::string, std::string>> assignments_;
  std::vector<std::string> program_;
  std::vector<std::string> repeated_;
};

// The environment of a command; made by apps/lockstep.cpp, or by a test.
struct Context {
  std::ostream& out;  // the result, for a pipe
  std::ostream& err;  // messages for the user
  std::vector<std::pair<std::string, std::string>> environment;
  std::string executable;  // our own path; the worker lies beside it
  std::string command_line;
  std::string program = "lockstep";  // as it was typed
  bool color_out = false;
  bool color_err = false;

  std::optional<std::string> variable(std::string_view name) const;
};

// A command is: load, call one module, print. The result is the exit status; errors are
// thrown (Error) and printed by run().
struct Command {
  std::string name;
  std::string summary;       // one line, for the list of commands
  std::string usage;         // "lockstep train RECIPE [options] [section.key=value]..."
  std::string details = {};  // paragraphs and examples for --help
  std::vector<Operand> operands = {};
  std::vector<Option> options = {};  // --help is added to every command
  bool takes_overrides = false;
  // The first word that is no option, or the one behind "--", is a program: from there
  // on all words are its own. `operands` then only describe it.
  bool takes_program = false;
  std::function<int(const Arguments&, Context&)> run;
};

// The only list of commands, in the order of the help text: X(name) is
// name_command(), in a file of its own.
#define LOCKSTEP_COMMANDS(X) \
  X(train)                   \
  X(plan)                    \
  X(launch)                  \
  X(parity)                  \
  X(bench)                   \
  X(find_lr)                 \
  X(config)                  \
  X(runs)                    \
  X(status)                  \
  X(top)                     \
  X(report)                  \
  X(eval)                    \
  X(predict)                 \
  X(checkpoint)              \
  X(tokenizer)               \
  X(tokenize)                \
  X(generate)                \
  X(chat)                    \
  X(models)                  \
  X(serve)                   \
  X(submit)                  \
  X(jobs)                    \
  X(logs)                    \
  X(cancel)                  \
  X(pause)                   \
  X(resume)                  \
  X(token)                   \
  X(user)                    \
  X(backup)                  \
  X(restore)                 \
  X(supervise)               \
  X(hardware)                \
  X(gpus)                    \
  X(doctor)                  \
  X(version)                 \
  X(completion)              \
  X(help)

#define LOCKSTEP_DECLARE(name) Command name##_command();
LOCKSTEP_COMMANDS(LOCKSTEP_DECLARE)
#undef LOCKSTEP_DECLARE

// Returns the table of all commands.
const std::vector<Command>& commands();

// Returns how many of `words` belong to the command itself: all, up to "--", or up to
// the program that it takes.
std::size_t own_words(const Command& command, const std::vector<std::string>& words);

// Parses words; options may be spelled with underscores, too (--run_dir). Throws
// Fault::config, with a suggestion, on a word that is not declared.
Arguments parse(const Command& command, const std::vector<std::string>& words);

std::string overview();  // `lockstep help`
std::string help_for(const Command& command);

// Returns the typed command: the variables that set knobs, the program and its words.
// Typed again in the same directory it asks for the same, whatever the shell.
std::string command_line(
    const std::string& program, const std::vector<std::string>& words,
    const std::vector<std::pair<std::string, std::string>>& environment);

// Runs the whole program: `words` is argv without the program. Never throws; an error
// is one line on context.err.
int run(const std::vector<std::string>& words, Context& context);

}  // namespace lockstep::cli
