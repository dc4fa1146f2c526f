// lockstep tokenizer ACTION ...: looks at a tokenizer, uses it, converts it, trains
// one.
#include "lockstep/tokenizer/tokenizer.h"

#include <algorithm>
#include <limits>
#include <ostream>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/detail/json_line.h"
#include "lockstep/cli/detail/tokenizer.h"
#include "lockstep/hardware/cpu_topology.h"
#include "lockstep/tokenizer/files.h"

namespace lockstep::cli {
namespace {

using tokenizer::Token;
using tokenizer::Tokenizer;

constexpr const char* kDetails =
    "  lockstep tokenizer train books/ -o mine --vocab-size 8000\n"
    "  lockstep tokenizer show mine\n"
    "  lockstep tokenizer encode gpt2 'Hello world'\n"
    "  lockstep tokenizer decode gpt2 15496 995\n"
    "  lockstep tokenizer convert gpt2.tiktoken -o gpt2\n\n"
    "train    byte-level BPE from .txt and .jsonl files and folders of them; the "
    "merges\n"
    "         are those of Hugging Face's BpeTrainer\n"
    "show     what a tokenizer has\n"
    "encode   the tokens of a text: the words, --file FILE, or standard input\n"
    "decode   the bytes of tokens: the numbers, --file FILE, or standard input\n"
    "convert  writes tokenizer.json, vocab.json, merges.txt and "
    "tokenizer_config.json\n\n"
    "A tokenizer is a folder or file: tokenizer.json, vocab.json with merges.txt, or\n"
    ".tiktoken. `lockstep tokenize` makes token files.\n";

// Returns the first of the words, which names a tokenizer, loaded.
Tokenizer named_tokenizer(const Arguments& arguments, const std::string& action) {
  const auto& words = arguments.repeated();
  if (words.empty()) {
    throw Error(Fault::config, "tokenizer ", action,
                ": name a tokenizer, for example `lockstep tokenizer ", action,
                " gpt2`");
  }
  return Tokenizer::load(words[0]);
}

void refuse_more_words(const Arguments& arguments, const std::string& action,
                       std::size_t most) {
  if (arguments.repeated().size() <= most) return;
  throw Error(Fault::config, "tokenizer ", action, ": '", arguments.repeated()[most],
              "' is unexpected; quote a text of several words");
}

// Returns the words behind the tokenizer, or the file, or standard input.
std::string given_text(const Arguments& arguments) {
  const auto& words = arguments.repeated();
  const auto file = arguments.value("--file");
  if (words.size() > 1 && file) {
    throw Error(Fault::config, "tokenizer: '", words[1],
                "' and --file both say what to read; leave one out");
  }
  if (words.size() > 1 && words[1] != "-") {
    std::string text = words[1];
    for (std::size_t i = 2; i < words.size(); ++i) text += " " + words[i];
    return text;
  }
  return files::read(input_path(file.value_or("-")),
                     std::numeric_limits<std::int64_t>::max());
}

int encode(const Arguments& arguments, Context& context) {
  refuse_more_words(arguments, "encode", 2);
  const auto tokenizer = named_tokenizer(arguments, "encode");
  const auto text = given_text(arguments);
  const auto tokens = tokenizer.encode(text, special_of(arguments));
  if (arguments.has("--json")) {
    context.out << json_line({{"count", tokens.size()}, {"tokens", tokens}});
    return kExitOk;
  }
  context.out << fmt::format("{}\n", fmt::join(tokens, " "));
  return kExitOk;
}

std::vector<Token> parse_tokens(std::string_view text) {
  std::vector<Token> tokens;
  constexpr std::string_view kBetween = " \t\r\n,[]";
  while (true) {
    const auto begin = text.find_first_not_of(kBetween);
    if (begin == text.npos) return tokens;
    text.remove_prefix(begin);
    const auto word = text.substr(0, text.find_first_of(kBetween));
    const auto number = text::to_integer(word);
    if (!number || *number < 0 || *number > std::numeric_limits<Token>::max()) {
      throw Error(Fault::config, "tokenizer decode: '", word.substr(0, 40),
                  "' is not a token id; give numbers, with blanks or commas between");
    }
    tokens.push_back(static_cast<Token>(*number));
    text.remove_prefix(word.size());
  }
}

int decode(const Arguments& arguments, Context& context) {
  const auto tokenizer = named_tokenizer(arguments, "decode");
  const auto tokens = parse_tokens(given_text(arguments));
  const auto bytes = tokenizer.decode(tokens);
  if (arguments.has("--json")) {
    context.out << json_line({{"count", tokens.size()}, {"text", bytes}});
    return kExitOk;
  }
  context.out << bytes;
  return kExitOk;
}

int show(const Arguments& arguments, Context& context) {
  refuse_more_words(arguments, "show", 1);
  const auto tokenizer = named_tokenizer(arguments, "show");
  const auto& vocabulary = tokenizer.vocabulary();
  std::size_t longest = 0;
  for (const auto& bytes : vocabulary.bytes) longest = std::max(longest, bytes.size());
  if (arguments.has("--json")) {
    auto added = nlohmann::ordered_json::array();
    for (const auto& token : vocabulary.added) {
      added.push_back(
          {{"text", token.text}, {"id", token.id}, {"special", token.special}});
    }
    context.out << json_line({{"tokens", tokenizer.size()},
                              {"merges", vocabulary.merges.size()},
                              {"longest_bytes", longest},
                              {"added", added}});
    return kExitOk;
  }
  context.out << "tokens   "
              << text::with_commas(static_cast<long long>(tokenizer.size()))
              << " (byte-level BPE, words as GPT-2 splits them)\nmerges   "
              << text::with_commas(static_cast<long long>(vocabulary.merges.size()))
              << "\nlongest  " << longest << " bytes\n";
  for (const auto& token : vocabulary.added) {
    context.out << (token.special ? "special  " : "added    ") << token.text << " = "
                << token.id << "\n";
  }
  return kExitOk;
}

int convert(const Arguments& arguments, Context& context) {
  refuse_more_words(arguments, "convert", 1);
  const auto target = arguments.value("--output");
  if (!target) {
    throw Error(Fault::config,
                "tokenizer convert: say where the files go: --output FOLDER");
  }
  tokenizer::save(named_tokenizer(arguments, "convert"), *target);
  context.out << *target << "\n";
  return kExitOk;
}

int run_tokenizer(const Arguments& arguments, Context& context) {
  const auto action = arguments.operand("ACTION").value_or("");
  if (action == "train") return train_tokenizer(arguments, context);
  if (action == "show") return show(arguments, context);
  if (action == "encode") return encode(arguments, context);
  if (action == "decode") return decode(arguments, context);
  return convert(arguments, context);
}

}  // namespace

std::size_t thread_count(const Arguments& arguments) {
  const auto given = arguments.number("--threads", 1);
  if (given) return static_cast<std::size_t>(*given);
  const auto topology = hardware::cpu_topology();
  const auto cpus = static_cast<int>(topology.cpus.size());
  return static_cast<std::size_t>(
      std::max(1, std::min(cpus, topology.quota.value_or(cpus))));
}

tokenizer::Special special_of(const Arguments& arguments) {
  const auto word = arguments.value("--special").value_or("refuse");
  if (word == "allow") return tokenizer::Special::allow;
  return word == "text" ? tokenizer::Special::as_text : tokenizer::Special::refuse;
}

std::string input_path(const std::string& word) {
  return word == "-" ? "/dev/stdin" : word;
}

Option special_option() {
  return {.name = "--special",
          .value = "HOW",
          .help =
              "<|endoftext|> in a text: refuse it (default), allow it as the token, "
              "or take it as text.",
          .choices = {"refuse", "allow", "text"}};
}

Option threads_option() {
  return {.name = "--threads",
          .value = "N",
          .help = "The number of threads (default: one for each core)."};
}

Option field_option() {
  return {.name = "--field",
          .value = "NAME",
          .help = "The field of a .jsonl line that holds the text (default: text)."};
}

Command tokenizer_command() {
  return {.name = "tokenizer",
          .summary = "Train, show, use and convert tokenizers.",
          .usage =
              "lockstep tokenizer train IN... --output FOLDER --vocab-size N\n"
              "       lockstep tokenizer show WHERE [--json]\n"
              "       lockstep tokenizer encode|decode WHERE [TEXT] [options]\n"
              "       lockstep tokenizer convert WHERE --output FOLDER",
          .details = kDetails,
          .operands = {{.name = "ACTION",
                        .help = "The action.",
                        .choices = {"train", "show", "encode", "decode", "convert"}},
                       {.name = "WORD",
                        .help = "train: files and folders; else the tokenizer, then "
                                "the text or the tokens.",
                        .required = false,
                        .completes = Completes::file,
                        .repeats = true}},
          .options = {{.name = "--output",
                       .shorthand = "-o",
                       .value = "FOLDER",
                       .help = "train, convert: where the files go.",
                       .completes = Completes::directory},
                      {.name = "--vocab-size",
                       .value = "N",
                       .help = "train: how many tokens, the 256 bytes and "
                               "<|endoftext|> included."},
                      {.name = "--min-frequency",
                       .value = "N",
                       .help = "train: merge no pair that occurs less often."},
                      field_option(),
                      {.name = "--file",
                       .value = "FILE",
                       .help = "encode, decode: read this; -: standard input.",
                       .completes = Completes::file},
                      special_option(),
                      threads_option(),
                      {.name = "--json", .help = "One JSON object."}},
          .run = run_tokenizer};
}

}  // namespace lockstep::cli
