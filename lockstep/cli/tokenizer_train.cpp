// lockstep tokenizer train: from texts to the files of a tokenizer.
#include <deque>
#include <ostream>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/cli/detail/json_line.h"
#include "lockstep/cli/detail/progress_line.h"
#include "lockstep/cli/detail/tokenizer.h"
#include "lockstep/tokenizer/documents.h"
#include "lockstep/tokenizer/files.h"
#include "lockstep/tokenizer/train.h"

namespace lockstep::cli {
namespace {

// The words of all files, and how much was read for them.
struct Counted {
  tokenizer::WordCounts words;
  std::size_t bytes = 0;
};

struct CountOptions {
  std::string field;  // of .jsonl files
  std::size_t threads = 1;
};

void count_file(const tokenizer::TextFile& text, const CountOptions& options,
                Counted& counted) {
  const auto& [field, threads] = options;
  const tokenizer::FileBytes file(text.path);
  counted.bytes += file.text().size();
  if (!text.is_jsonl) {
    counted.words.add(tokenizer::count_words({file.text()}, true, threads));
    return;
  }
  std::deque<std::string> texts;  // views of its strings stay valid
  std::vector<std::string_view> views;
  auto rest = file.text();
  tokenizer::JsonLine line;
  while (tokenizer::next_json_line(rest, line)) {
    const auto place = str(text.path.string(), ":", line.number);
    texts.push_back(tokenizer::text_of_line(line.text, field, place));
    views.emplace_back(texts.back());
  }
  counted.words.add(tokenizer::count_words(views, false, threads));
}

Counted count_all(const Arguments& arguments, ProgressLine& progress) {
  std::vector<std::filesystem::path> inputs;
  for (const auto& word : arguments.repeated()) inputs.emplace_back(input_path(word));
  const CountOptions options{.field = arguments.value("--field").value_or("text"),
                             .threads = thread_count(arguments)};
  Counted counted;
  for (const auto& text : tokenizer::find_texts(inputs)) {
    count_file(text, options, counted);
    progress.show([&] {
      return fmt::format("counting words: {:.1f} MB, {} words",
                         1e-6 * double(counted.bytes), counted.words.words().size());
    });
  }
  return counted;
}

}  // namespace

int train_tokenizer(const Arguments& arguments, Context& context) {
  const auto target = arguments.value("--output");
  const auto size = arguments.number("--vocab-size", 1);
  if (arguments.repeated().empty() || !target || !size) {
    throw Error(Fault::config,
                "tokenizer train: needs texts, --output FOLDER and --vocab-size N, for "
                "example `lockstep tokenizer train books/ -o mine --vocab-size 8000`");
  }
  ProgressLine progress(context);
  const auto counted = count_all(arguments, progress);
  tokenizer::TrainOptions options{
      .vocab_size = static_cast<std::size_t>(*size),
      .min_frequency = static_cast<std::uint64_t>(
          arguments.number("--min-frequency", 0).value_or(0)),
      .progress = [&](std::size_t tokens) {
        progress.show([&] { return fmt::format("token {} of {}", tokens, *size); });
      }};
  const tokenizer::Tokenizer trained(tokenizer::train(counted.words, options));
  tokenizer::save(trained, *target);
  const auto seconds = progress.seconds();
  if (arguments.has("--json")) {
    context.out << json_line({{"tokens", trained.size()},
                              {"merges", trained.vocabulary().merges.size()},
                              {"words", counted.words.words().size()},
                              {"bytes", counted.bytes},
                              {"seconds", seconds},
                              {"output", *target}});
    return kExitOk;
  }
  context.out << fmt::format(
      "{}: {} tokens from {:.1f} MB of text ({} different words) in {:.1f} s\n",
      *target, trained.size(), 1e-6 * static_cast<double>(counted.bytes),
      counted.words.words().size(), seconds);
  if (trained.size() < options.vocab_size) {
    context.err << fmt::format(
        "lockstep: the text has no more pairs than {} tokens need; requested {}\n",
        trained.size(), options.vocab_size);
  }
  return kExitOk;
}

}  // namespace lockstep::cli
