// Texts that are turned into tokens when they are opened: windows of plain texts,
// examples of .jsonl files.
#include "lockstep/base/text.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/data/detail/mapped_file.h"
#include "lockstep/data/detail/token_bytes.h"
#include "lockstep/data/examples.h"
#include "lockstep/data/packed.h"
#include "lockstep/data/sources.h"
#include "lockstep/data/subset.h"
#include "lockstep/tokenizer/encoder.h"

namespace lockstep::data {
namespace {

using Path = std::filesystem::path;
using tokenizer::Special;
using tokenizer::Token;

constexpr std::int64_t kIgnored = -100;  // the default of PyTorch's cross-entropy
// Above it, starting takes minutes, on every rank.
constexpr std::int64_t kLargeBytes = 200 << 20;

Token end_token(const tokenizer::Tokenizer& words, const std::string& path) {
  if (const auto token = words.end_of_text()) return *token;
  throw Error(Fault::config, "data.tokenizer: '", path, "' has no ",
              tokenizer::kEndOfText, ", which stands between documents; add it");
}

std::int64_t* numbers(std::span<std::byte> bytes) {
  return reinterpret_cast<std::int64_t*>(bytes.data());
}

SampleSpec spec_for(const tokenizer::Tokenizer& words, std::int64_t length) {
  SampleSpec spec;
  spec.shape = spec.target_shape = {length};
  spec.dtype = torch::kInt64;
  spec.num_classes = static_cast<std::int64_t>(words.size());
  spec.fields = {{.name = "target_bytes", .shape = {length}, .dtype = torch::kInt64}};
  return spec;
}

// Documents one behind the other, each with the end of text before it, in windows.
class Windows : public Dataset {
 public:
  Windows(std::vector<Token> stream, const tokenizer::Tokenizer& words,
          std::int64_t sequence)
      : stream_(std::move(stream)),
        lengths_(detail::token_bytes(words)),
        sequence_(sequence),
        spec_(spec_for(words, sequence)) {}

  std::int64_t size() const noexcept override {
    return (static_cast<std::int64_t>(stream_.size()) - 1) / sequence_;
  }
  const SampleSpec& spec() const noexcept override { return spec_; }

  void read_sample(const Visit& visit, const SampleBuffer& room) const override {
    auto* input = numbers(room.input);
    auto* bytes = numbers(room.fields[0]);
    const auto* from = stream_.data() + visit.index * sequence_;
    for (std::int64_t i = 0; i < sequence_; ++i) {
      input[i] = from[i];
      room.target[static_cast<std::size_t>(i)] = from[i + 1];
      bytes[i] = lengths_[from[i + 1]];
    }
  }

 private:
  std::vector<Token> stream_;
  std::vector<std::int64_t> lengths_;
  std::int64_t sequence_;
  SampleSpec spec_;
};

// A token and whether it is learnt.
struct Step {
  Token token;
  bool is_learnt;
};

// An example each, of its own length.
class Sequences : public Dataset {
 public:
  Sequences(std::vector<std::vector<Step>> sequences, const tokenizer::Tokenizer& words,
            std::int64_t longest)
      : sequences_(std::move(sequences)),
        lengths_(detail::token_bytes(words)),
        spec_(spec_for(words, longest)) {
    spec_.varies = spec_.target_varies = true;
    spec_.fields[0].varies = true;
    spec_.ignore_index = kIgnored;
  }

  std::int64_t size() const noexcept override {
    return static_cast<std::int64_t>(sequences_.size());
  }
  const SampleSpec& spec() const noexcept override { return spec_; }
  std::int64_t length_of(std::int64_t index) const override {
    return static_cast<std::int64_t>(at(index).size()) - 1;
  }

  void read_sample(const Visit& visit, const SampleBuffer& room) const override {
    const auto& steps = at(visit.index);
    auto* input = numbers(room.input);
    auto* bytes = numbers(room.fields[0]);
    for (std::size_t i = 0; i + 1 < steps.size(); ++i) {
      const auto& next = steps[i + 1];
      input[i] = steps[i].token;
      room.target[i] = next.is_learnt ? next.token : kIgnored;
      bytes[i] = next.is_learnt ? lengths_[next.token] : 0;
    }
    std::fill(room.lengths.begin(), room.lengths.end(), length_of(visit.index));
  }

 private:
  const std::vector<Step>& at(std::int64_t index) const {
    return sequences_[static_cast<std::size_t>(index)];
  }

  std::vector<std::vector<Step>> sequences_;
  std::vector<std::int64_t> lengths_;
  SampleSpec spec_;
};

bool is_examples(const Path& file) {
  return file.extension() == ".jsonl";
}

std::vector<Path> files_in(const config::DataConfig& config, Split split) {
  const Path folder = require_folder(config, "a folder of texts (.txt or .jsonl)");
  if (std::filesystem::is_regular_file(folder)) {
    if (split == Split::train) return {folder};
    throw Error(Fault::config, "data.dir: '", folder.string(),
                "' is one file, and there is none to evaluate on; hold samples back "
                "with data.split=0.1");
  }
  const auto fits = [&](const Path& file) {
    if (config.split > 0) return split == Split::train;
    return names_eval(file.lexically_relative(folder).string()) ==
           (split == Split::eval);
  };
  std::vector<Path> files;
  std::error_code error;
  using Walk = std::filesystem::recursive_directory_iterator;
  for (Walk at(folder, error); !error && at != Walk(); at.increment(error)) {
    const auto& path = at->path();
    const auto kind = path.extension();
    const bool is_text = kind == ".txt" || kind == ".jsonl";
    std::error_code ignored;
    if (is_text && std::filesystem::is_regular_file(path, ignored) && fits(path)) {
      files.push_back(path);
    }
  }
  if (error) {
    throw Error(Fault::io, "data: '", folder.string(),
                "' cannot be read: ", error.message());
  }
  if (files.empty()) {
    throw Error(Fault::io, "data: '", folder.string(), "' has no .txt or .jsonl file ",
                split == Split::train
                    ? "to train on; set data.dir to the folder of the texts"
                    : "with 'val' or 'test' in its name to evaluate on; add one, or "
                      "hold samples back with data.split=0.1");
  }
  std::sort(files.begin(), files.end());
  const auto others = std::count_if(files.begin(), files.end(), is_examples);
  if (others != 0 && others != static_cast<std::ptrdiff_t>(files.size())) {
    throw Error(Fault::config, "data: '", folder.string(), "' has ", others,
                " .jsonl files and ", files.size() - static_cast<std::size_t>(others),
                " .txt files; examples and plain texts do not mix: keep one kind");
  }
  return files;
}

// Turns texts into tokens.
class Reader {
 public:
  explicit Reader(const config::DataConfig& config)
      : config_(config),
        words_(tokenizer::Tokenizer::load(config.text.tokenizer)),
        end_(end_token(words_, config.text.tokenizer)),
        encoder_(words_) {}

  Opened windows(const std::vector<Path>& files) {
    std::vector<Token> stream;
    for (const auto& file : files) {
      if (std::filesystem::file_size(file) == 0) throw_empty(file);
      const detail::MappedFile mapped(file);
      const auto bytes = mapped.bytes();
      stream.push_back(end_);
      try {
        encoder_.encode({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                        Special::refuse, stream);
      } catch (const Error& error) {
        throw Error(Fault::io, "data: '", file.string(), "': ", error.what());
      }
    }
    const auto tokens = static_cast<std::int64_t>(stream.size());
    if (tokens <= config_.sequence) {
      throw Error(Fault::io, "data: the texts in '", config_.dir, "' have ", tokens,
                  " tokens, a sample needs data.sequence + 1 = ", config_.sequence + 1,
                  "; lower data.sequence, or add texts");
    }
    log::info("data", str(files.size(), " texts, ", text::with_commas(tokens),
                          " tokens of '", config_.text.tokenizer, "'"));
    return std::make_unique<Windows>(std::move(stream), words_, config_.sequence);
  }

  Opened examples(const std::vector<Path>& files) {
    std::vector<std::vector<Step>> sequences;
    for (const auto& file : files) {
      read_examples(file, config_.text, [&](const Example& example) {
        sequences.push_back(sequence_of(example));
      });
    }
    if (sequences.empty()) throw_empty(files[0]);
    if (cut_ > 0) {
      log::warning("data",
                   str(cut_, " of ", sequences.size(), " examples are longer than ",
                       config_.sequence, " tokens (data.sequence) and were cut, ",
                       unlearnt_, " of them before anything that is learnt"));
    }
    if (unlearnt_ == static_cast<std::int64_t>(sequences.size())) {
      throw Error(Fault::config, "data.sequence: all ", unlearnt_,
                  " examples are cut after ", config_.sequence,
                  " tokens, before anything that is learnt; raise data.sequence, or "
                  "shorten the prompts");
    }
    auto all =
        std::make_unique<Sequences>(std::move(sequences), words_, config_.sequence);
    if (!config_.text.pack) return all;
    return packed(std::move(all), config_.sequence);
  }

 private:
  [[noreturn]] static void throw_empty(const Path& file) {
    throw Error(Fault::io, "data: '", file.string(), "' is empty; remove it");
  }

  std::vector<Step> sequence_of(const Example& example) {
    std::vector<Step> steps;
    for (const auto& [text, is_learnt] : example) {
      tokens_.clear();
      encoder_.encode(text, Special::refuse, tokens_);
      for (const auto token : tokens_) steps.push_back({token, is_learnt});
    }
    if (steps.empty()) throw Error(Fault::io, "the text is empty; remove the line");
    steps.push_back({end_, example.back().is_learnt});
    const auto longest = static_cast<std::size_t>(config_.sequence) + 1;
    if (steps.size() > longest) {
      steps.resize(longest);
      ++cut_;
      const bool learns = std::any_of(steps.begin() + 1, steps.end(),
                                      [](const Step& one) { return one.is_learnt; });
      if (!learns) ++unlearnt_;
    }
    return steps;
  }

  const config::DataConfig& config_;
  tokenizer::Tokenizer words_;
  Token end_;
  tokenizer::Encoder encoder_;
  std::vector<Token> tokens_;
  std::int64_t cut_ = 0;
  std::int64_t unlearnt_ = 0;  // of those
};

void warn_if_large(const std::vector<Path>& files) {
  std::int64_t bytes = 0;
  for (const auto& file : files) {
    bytes += static_cast<std::int64_t>(std::filesystem::file_size(file));
  }
  if (bytes < kLargeBytes) return;
  log::warning("data", str(bytes >> 20,
                           " MiB of text are turned into tokens on every "
                           "rank before the first step; `lockstep "
                           "tokenize` does it once, for data.name=tokens"));
}

}  // namespace

std::vector<std::int64_t> detail::token_bytes(const tokenizer::Tokenizer& words) {
  std::vector<std::int64_t> lengths;
  for (const auto& bytes : words.vocabulary().bytes) {
    lengths.push_back(static_cast<std::int64_t>(bytes.size()));
  }
  lengths.resize(words.size());
  for (const auto& added : words.vocabulary().added) {
    if (added.special) lengths[added.id] = 0;
  }
  return lengths;
}

Opened open_text(const config::DataConfig& config, Split split) {
  const auto files = files_in(config, split);
  warn_if_large(files);
  Reader reader(config);
  auto opened = is_examples(files[0]) ? reader.examples(files) : reader.windows(files);
  return thinned(std::move(opened), sample_limit(config, split));
}

}  // namespace lockstep::data
