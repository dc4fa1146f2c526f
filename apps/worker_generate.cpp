#include "apps/worker_generate.h"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iostream>

#include <fmt/format.h>
#include <unistd.h>

#include "lockstep/base/files.h"
#include "lockstep/base/text.h"
#include "lockstep/data/examples.h"
#include "lockstep/generate/chat.h"
#include "lockstep/generate/generate.h"
#include "lockstep/generate/source.h"
#include "lockstep/run/field.h"

namespace lockstep {
namespace {

// The words, by the names of the options; prompts may come more than once.
struct Request {
  generate::SourceOptions source;
  std::string tokenizer;
  std::vector<std::string> prompts;
  generate::GenerateOptions options;
  bool json = false;
  std::int64_t repeats = 1;  // benchmarks: all but the last warm up
  bool chats = false;
  std::string system;
};

double number_of(const std::string& name, const std::string& text) {
  if (const auto number = text::to_double(text)) return *number;
  throw Error(Fault::config, "generate: ", name, " '", text, "' is not a number");
}

torch::Dtype dtype_of(const std::string& name) {
  if (name == "bf16") return torch::kBFloat16;
  if (name == "fp16") return torch::kFloat16;
  return torch::kFloat32;
}

torch::Device device_of(const std::string& name) {
  const torch::Device device(name);
  if (device.is_cpu()) return device;
  const auto count = torch::cuda::is_available() ? torch::cuda::device_count() : 0;
  if (device.index() < static_cast<int>(count) && count > 0) return device;
  throw Error(Fault::hardware, "generate: --device ", name, ": there are ", count,
              " GPUs that this program can use; --device cpu computes here");
}

// Returns the lines of a file as prompts; blank ones are none.
std::vector<std::string> prompts_in(const std::string& file) {
  constexpr std::int64_t kLongest = 64 << 20;
  std::vector<std::string> prompts;
  for (auto line : text::split(files::read(file, kLongest), '\n')) {
    if (line.ends_with('\r')) line.pop_back();
    if (!text::trim(line).empty()) prompts.push_back(std::move(line));
  }
  if (!prompts.empty()) return prompts;
  throw Error(Fault::config, "generate: --prompts '", file,
              "' has no line with a prompt");
}

Request parse_request(const std::vector<std::string>& words) {
  Request request;
  if (torch::cuda::is_available()) request.source.device = torch::kCUDA;
  auto& sampling = request.options.sampling;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto& name = words[i];
    if (name == "--json" || name == "--chat") {
      (name == "--json" ? request.json : request.chats) = true;
      continue;
    }
    if (i + 1 == words.size()) {
      throw Error(Fault::config, "lockstep_worker: ", name, " has no value");
    }
    const auto& value = words[++i];
    if (name == "--source") request.source.path = value;
    if (name == "--device") request.source.device = device_of(value);
    if (name == "--dtype") request.source.dtype = dtype_of(value);
    if (name == "--tokenizer") request.tokenizer = value;
    if (name == "--prompt") request.prompts.push_back(value);
    if (name == "--prompts") request.prompts = prompts_in(value);
    if (name == "--system") request.system = value;
    if (name == "--stop") request.options.stop_words.push_back(value);
    if (name == "--max-tokens") {
      request.options.max_tokens = text::to_integer(value).value_or(0);
    }
    if (name == "--repeats") request.repeats = text::to_integer(value).value_or(1);
    if (name == "--temperature") sampling.temperature = number_of(name, value);
    if (name == "--top-k") sampling.top_k = text::to_integer(value).value_or(0);
    if (name == "--top-p") sampling.top_p = number_of(name, value);
    if (name == "--repetition-penalty") {
      sampling.repetition_penalty = number_of(name, value);
    }
    if (name == "--seed") {
      sampling.seed = static_cast<std::uint64_t>(text::to_integer(value).value_or(0));
    }
  }
  return request;
}

void put(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (std::fflush(stdout) == 0 || errno == EPIPE) return;
  throw Error(Fault::io, "cannot write to standard output: ", std::strerror(errno));
}

tokenizer::Tokenizer words_of(const Request& request,
                              const generate::ModelSource& source) {
  const auto path = request.tokenizer.empty()
                        ? source.tokenizer
                        : std::filesystem::path(request.tokenizer);
  if (path.empty()) {
    throw Error(Fault::config, "generate: '", request.source.path.string(),
                "' does not say which tokenizer it was trained with; name it with "
                "--tokenizer");
  }
  return tokenizer::Tokenizer::load(path);
}

std::string json_line(const std::string& prompt, const generate::Generated& made,
                      double seconds) {
  const std::vector<run::NamedValue> fields{
      {"prompt", prompt},
      {"text", made.text},
      {"prompt_tokens", made.prompt_tokens},
      {"tokens", static_cast<std::int64_t>(made.tokens.size())},
      {"ended", std::string(name_of(made.ended))},
      {"seconds", seconds}};
  return run::to_json_line(fields) + "\n";
}

// Rows that fill a vocabulary up have no token, and those of a model from elsewhere may
// have none: they are never chosen.
void settle_vocabulary(generate::ModelSource& source,
                       const tokenizer::Tokenizer& words) {
  auto& vocabulary = source.weights.vocabulary;
  const auto tokens = static_cast<std::int64_t>(words.size());
  if (vocabulary == 0 && !source.tokenizer.empty()) {
    const auto own = tokenizer::Tokenizer::load(source.tokenizer);
    vocabulary = static_cast<std::int64_t>(own.size());
  }
  if (vocabulary == 0) vocabulary = tokens;
  if (tokens > vocabulary || (source.is_exact && tokens != vocabulary)) {
    throw Error(Fault::config, "generate: the tokenizer has ", tokens,
                " tokens, the model was trained with ", vocabulary,
                "; name the tokenizer that it was trained with (--tokenizer)");
  }
  vocabulary = tokens;
}

int answer(const Request& request, generate::Decoder& decoder,
           const tokenizer::Tokenizer& words) {
  const bool streams = !request.json && request.prompts.size() == 1;
  bool is_begun = false;  // the prompt is shown when it is known to have an answer
  for (std::int64_t i = 1; i < request.repeats; ++i) {
    generate::generate({decoder, words}, request.prompts, request.options);
  }
  const auto begin = std::chrono::steady_clock::now();
  auto options = request.options;
  options.stream = [&](std::size_t, std::string_view letters) {
    if (!streams) return;
    if (!is_begun) put(request.prompts[0]);
    is_begun = true;
    put(letters);
  };
  const auto results = generate::generate({decoder, words}, request.prompts, options);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  if (streams) {
    put(is_begun ? "\n" : request.prompts[0] + "\n");
    return kExitOk;
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    put(request.json ? json_line(request.prompts[i], results[i], taken.count())
                     : request.prompts[i] + results[i].text + "\n");
  }
  return kExitOk;
}

int talk(generate::Decoder& decoder, const tokenizer::Tokenizer& words,
         const generate::Chat::Settings& settings) {
  generate::Chat chat(decoder, words, settings);
  const bool asks = ::isatty(STDIN_FILENO) == 1;
  std::string line;
  while (true) {
    if (asks) put("> ");
    if (!std::getline(std::cin, line)) break;
    if (line == "/reset") {
      chat.reset();
      continue;
    }
    if (text::trim(line).empty()) continue;
    try {
      chat.answer(line, [](std::string_view letters) { put(letters); });
    } catch (const Error& error) {  // the conversation goes on without this message
      std::cerr << "lockstep: " << error.what() << std::endl;
    }
    put("\n");
  }
  if (asks) put("\n");
  return kExitOk;
}

}  // namespace

int run_generate(const std::vector<std::string>& words, ConfigLoader load) {
  auto request = parse_request(words);
  request.source.load_config = load;
  auto source = generate::load_source(request.source);
  const auto tokenizer = words_of(request, source);
  settle_vocabulary(source, tokenizer);
  request.options.end_tokens = source.end_tokens;
  generate::Decoder decoder(std::move(source.weights));
  if (request.chats && !source.knows_chats) {
    std::cerr << "lockstep: the chat template of '" << request.source.path.string()
              << "' is in Jinja, which is not read here; messages are written as '"
              << source.text.chat_template << "'" << std::endl;
  }
  return request.chats
             ? talk(decoder, tokenizer, {request.options, source.text, request.system})
             : answer(request, decoder, tokenizer);
}

}  // namespace lockstep
