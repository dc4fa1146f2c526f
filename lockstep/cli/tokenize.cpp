// lockstep tokenize IN... -o train.bin: from texts to token files.
#include "lockstep/tokenizer/tokenize.h"

#include <ostream>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/detail/json_line.h"
#include "lockstep/cli/detail/progress_line.h"
#include "lockstep/cli/detail/tokenizer.h"

namespace lockstep::cli {
namespace {

constexpr double kMegabyte = 1e6;

double fraction_of(const Arguments& arguments) {
  const auto given = arguments.value("--val-fraction");
  if (!given) return 0;
  const auto fraction = text::to_double(*given);
  if (!fraction || !(*fraction > 0 && *fraction < 1)) {
    throw Error(Fault::config, "--val-fraction: '", *given,
                "' is not a number between 0 and 1, for example 0.1");
  }
  return *fraction;
}

std::string progress_text(const tokenizer::TokenizeProgress& progress, double seconds) {
  const auto done = static_cast<double>(progress.bytes_done);
  const auto total = static_cast<double>(progress.bytes_total);
  auto text = fmt::format("{:.1f}/{:.1f} MB", done / kMegabyte, total / kMegabyte);
  if (total > 0) text += fmt::format("  {:.0f} %", 100 * done / total);
  const auto left = done > 0 ? seconds * (total - done) / done : 0;
  const auto clock = [](double s) {
    return units::format_clock(std::chrono::seconds(static_cast<long long>(s)));
  };
  return text + fmt::format("  {}<{}  {} tokens  {:.1f} MB/s", clock(seconds),
                            clock(std::max(left, 0.0)),
                            text::with_commas(progress.tokens),
                            seconds > 0 ? done / kMegabyte / seconds : 0.0);
}

nlohmann::ordered_json names(const std::vector<std::filesystem::path>& files) {
  auto list = nlohmann::ordered_json::array();
  for (const auto& file : files) list.push_back(file.string());
  return list;
}

void print_json(const tokenizer::TokenizeResult& result, double seconds,
                Context& context) {
  context.out << json_line({{"documents", result.documents},
                            {"empty", result.empty},
                            {"bytes", result.bytes},
                            {"tokens", result.tokens},
                            {"val_documents", result.val_documents},
                            {"val_tokens", result.val_tokens},
                            {"files", names(result.files)},
                            {"val_files", names(result.val_files)},
                            {"seconds", seconds}});
}

void print_text(const tokenizer::TokenizeResult& result, double seconds,
                Context& context) {
  const auto line = [&](const auto& files, std::int64_t documents,
                        std::int64_t tokens) {
    for (const auto& file : files) context.out << file.string() << " ";
    context.out << fmt::format("{} tokens of {} document{}\n",
                               text::with_commas(tokens), text::with_commas(documents),
                               documents == 1 ? "" : "s");
  };
  line(result.files, result.documents - result.val_documents,
       result.tokens - result.val_tokens);
  if (!result.val_files.empty()) {
    line(result.val_files, result.val_documents, result.val_tokens);
  }
  const auto bytes = static_cast<double>(result.bytes);
  context.out << fmt::format(
      "{} documents, {} tokens, {:.2f} bytes per token, {:.1f} s, {:.1f} MB/s\n",
      text::with_commas(result.documents), text::with_commas(result.tokens),
      bytes / static_cast<double>(result.tokens), seconds,
      bytes / kMegabyte / std::max(seconds, 1e-9));
  if (result.empty > 0) {
    context.err << fmt::format("lockstep: {} empty document{} left out\n", result.empty,
                               result.empty == 1 ? " was" : "s were");
  }
}

int run_tokenize(const Arguments& arguments, Context& context) {
  const auto output = arguments.value("--output");
  const auto place = arguments.value("--tokenizer");
  if (!output || !place) {
    throw Error(
        Fault::config, "tokenize: needs ",
        output ? "--tokenizer FOLDER" : "--output train.bin",
        ", for example `lockstep tokenize books/ -o train.bin --tokenizer gpt2`");
  }
  tokenizer::TokenizeRequest request{
      .output = *output,
      .val_fraction = fraction_of(arguments),
      .field = arguments.value("--field").value_or("text"),
      .special = special_of(arguments),
      .threads = thread_count(arguments)};
  for (const auto& word : arguments.repeated()) {
    request.inputs.emplace_back(input_path(word));
  }
  const auto with = tokenizer::Tokenizer::load(*place);
  ProgressLine line(context);
  request.progress = [&](const tokenizer::TokenizeProgress& progress) {
    line.show([&] { return progress_text(progress, line.seconds()); });
  };
  const auto result = tokenizer::tokenize(with, request);
  const auto seconds = line.seconds();
  if (arguments.has("--json")) {
    print_json(result, seconds, context);
  } else {
    print_text(result, seconds, context);
  }
  return kExitOk;
}

}  // namespace

Command tokenize_command() {
  return {
      .name = "tokenize",
      .summary = "Turn texts into token files to train on.",
      .usage =
          "lockstep tokenize IN... --output train.bin --tokenizer FOLDER [options]",
      .details =
          "  lockstep tokenize books/ -o data/train.bin --tokenizer gpt2 "
          "--val-fraction 0.1\n"
          "  lockstep tokenize chats.jsonl -o data/train.bin --tokenizer mine --field "
          "body\n\n"
          "A .txt file is a document, and so is each line of a .jsonl file; of a "
          "folder "
          "all of\nthem are taken, sorted. <|endoftext|> stands before each document. "
          "The files are\nllm.c's, which data.name=tokens reads; docs/text.md says "
          "more.\n",
      .operands = {{.name = "IN",
                    .help = "Files (.txt, .jsonl; -: standard input) and folders.",
                    .completes = Completes::file,
                    .repeats = true}},
      .options = {{.name = "--output",
                   .shorthand = "-o",
                   .value = "FILE",
                   .help = "The token file, for example data/train.bin.",
                   .completes = Completes::file},
                  {.name = "--tokenizer",
                   .value = "WHERE",
                   .help = "A folder or file of a tokenizer.",
                   .completes = Completes::directory},
                  {.name = "--val-fraction",
                   .value = "F",
                   .help = "Hold out this fraction of the documents in val.bin beside "
                           "it (of a single .txt file, its end)."},
                  field_option(),
                  special_option(),
                  threads_option(),
                  {.name = "--json", .help = "One JSON object."}},
      .run = run_tokenize};
}

}  // namespace lockstep::cli
