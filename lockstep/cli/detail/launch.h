#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/cli/command.h"
#include "lockstep/launcher/job.h"

// The options of `lockstep launch`: torchrun's and ours.
namespace lockstep::cli {

// An option with its value, from the command line or, if it is not there, from
// PET_<NAME>.
class LaunchWords {
 public:
  LaunchWords(const Arguments& arguments, const Context& context)
      : arguments_(arguments), context_(context) {}

  bool has(std::string_view option) const;  // a switch
  std::optional<std::string> value(std::string_view option) const;
  bool typed(std::string_view option) const;  // on the command line

  // Returns "--nnodes" or "PET_NNODES", where the value comes from, for errors.
  std::string source(std::string_view option) const;

  // Throws Fault::config, naming the source, when it is no whole number >= `least`.
  std::optional<int> number(std::string_view option, int least) const;

  const std::vector<std::string>& program() const { return arguments_.program(); }
  std::optional<std::string> variable(std::string_view name) const {
    return context_.variable(name);
  }

 private:
  const Arguments& arguments_;
  const Context& context_;
};

// The rendezvous of the ranks of all nodes, and which of the nodes this is.
struct Meeting {
  int nodes = 1;
  int node = 0;
  std::string address;  // "": the launcher's own choice, one node only
  int port = 0;         // 0: a free one, one node only
};

struct LaunchOptions {
  launcher::Job job;               // without `say`
  std::string log_dir;             // "": a temporary directory
  std::string threads_line;        // "OMP_NUM_THREADS=2 for each rank (because)"
  std::vector<std::string> notes;  // sentences for the user
};

// Throws Fault::config on options that can not work, naming the option and the remedy.
LaunchOptions launch_options(const LaunchWords& words);

Meeting meeting_of(const LaunchWords& words);

// Returns the program with its arguments; a Python script that can not start by itself
// gets Python before it, and a note says so. A missing program is refused.
std::vector<std::string> program_command(const LaunchWords& words,
                                         std::vector<std::string>& notes);

// Returns what each local rank shows on the terminal: --tee, --redirects and
// --local-ranks-filter.
std::vector<launcher::StdStreams> consoles_of(const LaunchWords& words, int ranks);

// Refuses options of torchrun that mean nothing here, each with a sentence of its own.
void refuse_foreign_options(const LaunchWords& words);

// Returns the options that are declared so that the refusal is not "unknown".
std::vector<Option> foreign_options();

// Parses "30s" of --grace-period.
std::chrono::milliseconds grace_period(std::string_view source,
                                       const std::optional<std::string>& given);

// Returns what would be started, for --dry-run.
std::string launch_text(const LaunchOptions& options);

}  // namespace lockstep::cli
