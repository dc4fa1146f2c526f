// lockstep generate SOURCE --prompt TEXT: continues texts by a trained model.
#include "lockstep/cli/detail/generate.h"

#include "lockstep/base/error.h"
#include "lockstep/cli/command.h"

namespace lockstep::cli {
namespace {

int run_command(const Arguments& arguments, Context& context) {
  auto words = generation_words(arguments, context);
  const auto prompt = arguments.value("--prompt");
  const auto file = arguments.value("--prompts");
  if (prompt && file) {
    throw Error(Fault::config,
                "generate: --prompt and --prompts are both given; leave one out");
  }
  if (file) {
    words.insert(words.end(), {"--prompts", *file});
  } else {
    words.insert(words.end(), {"--prompt", prompt.value_or("")});
  }
  if (arguments.has("--json")) words.emplace_back("--json");
  return run_generation(words, context);
}

}  // namespace

Command generate_command() {
  auto options = generation_options();
  options.insert(options.begin(),
                 {{.name = "--prompt",
                   .shorthand = "-p",
                   .value = "TEXT",
                   .help = "The text to continue (default: none, the model begins)."},
                  {.name = "--prompts",
                   .value = "FILE",
                   .help = "A file with one prompt a line, generated as one batch.",
                   .completes = Completes::file}});
  options.push_back(
      {.name = "--json", .help = "Print one JSON object for each prompt."});
  return {.name = "generate",
          .summary = "Generate text with a trained model.",
          .usage = "lockstep generate [SOURCE] --prompt TEXT [options]",
          .details =
              "lockstep generate --prompt 'In the beginning'\n"
              "lockstep generate gpt2 --prompt 'Hello' --temperature 0\n"
              "lockstep generate runs/0001 --prompts lines.txt --json\n",
          .operands = {generation_source()},
          .options = std::move(options),
          .run = run_command};
}

}  // namespace lockstep::cli
