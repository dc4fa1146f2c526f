// lockstep chat SOURCE: talks with a trained model.
#include "lockstep/cli/command.h"
#include "lockstep/cli/detail/generate.h"

namespace lockstep::cli {
namespace {

int run_command(const Arguments& arguments, Context& context) {
  auto words = generation_words(arguments, context);
  words.emplace_back("--chat");
  if (const auto system = arguments.value("--system")) {
    words.insert(words.end(), {"--system", *system});
  }
  return run_generation(words, context);
}

}  // namespace

Command chat_command() {
  auto options = generation_options();
  options.push_back(
      {.name = "--system", .value = "TEXT", .help = "The system prompt."});
  return {.name = "chat",
          .summary = "Chat with a trained model.",
          .usage = "lockstep chat [SOURCE] [options]",
          .details =
              "A message a line, from the terminal or a pipe. The conversation "
              "so far goes with each\nmessage, as data.chat_template writes it; "
              "/reset forgets it. Ctrl-D ends it.\n",
          .operands = {generation_source()},
          .options = std::move(options),
          .run = run_command};
}

}  // namespace lockstep::cli
