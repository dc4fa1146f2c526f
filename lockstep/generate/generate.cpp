#include "lockstep/generate/generate.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "lockstep/base/error.h"

namespace lockstep::generate {
namespace {

using tokenizer::Token;

// One of the texts: its tokens so far, and what was said of it.
class Text {
 public:
  Text(const tokenizer::Tokenizer& words, const GenerateOptions& options,
       std::int64_t number)
      : words_(words), options_(options), sampler_(options.sampling, number) {}

  void begin(std::vector<std::int64_t> prompt) {
    tokens_ = std::move(prompt);
    // An empty prompt asks for any text: one that begins where another has ended.
    if (tokens_.empty() && words_.end_of_text())
      tokens_.push_back(*words_.end_of_text());
    out_.prompt_tokens = static_cast<std::int64_t>(tokens_.size());
  }

  const std::vector<std::int64_t>& tokens() const noexcept { return tokens_; }
  bool is_over() const noexcept { return over_; }
  Generated& result() noexcept { return out_; }

  // Takes the logits of the next token. Returns the letters that are new and whole.
  std::string_view take(std::span<const float> logits, std::int64_t context) {
    const auto token = sampler_.next(logits, tokens_);
    tokens_.push_back(token);
    out_.tokens.push_back(token);
    if (is_end(token)) {
      end(Ended::end_of_text);
    } else {
      out_.text += words_.token_bytes(static_cast<Token>(token));
      cut_at_stop_word();
    }
    if (!over_ &&
        static_cast<std::int64_t>(out_.tokens.size()) >= options_.max_tokens) {
      end(Ended::max_tokens);
    }
    if (!over_ && static_cast<std::int64_t>(tokens_.size()) >= context) {
      end(Ended::context_full);
    }
    return news();
  }

 private:
  bool is_end(std::int64_t token) const {
    const auto& ends = options_.end_tokens;
    return (words_.end_of_text() && token == *words_.end_of_text()) ||
           std::find(ends.begin(), ends.end(), token) != ends.end();
  }

  void end(Ended ended) {
    over_ = true;
    out_.ended = ended;
  }

  void cut_at_stop_word() {
    auto first = std::string::npos;
    for (const auto& word : options_.stop_words) {
      // It may have begun in letters that were there before.
      const auto from = told_ >= word.size() ? told_ - word.size() : 0;
      first = std::min(first, out_.text.find(word, from));
    }
    if (first == std::string::npos) return;
    out_.text.resize(std::max(first, told_));
    end(Ended::stop_word);
  }

  // Letters that may be the begin of a stop word are held back.
  std::string_view news() {
    const auto until = over_ ? out_.text.size() : out_.text.size() - held_back();
    auto letters = std::string_view(out_.text).substr(told_, until - told_);
    letters = letters.substr(0, whole_letters(letters));
    told_ += letters.size();
    return letters;
  }

  std::size_t held_back() const {
    std::size_t longest = 0;
    for (const auto& word : options_.stop_words) {
      for (auto size = std::min(word.size() - 1, out_.text.size() - told_);
           size > longest; --size) {
        if (out_.text.ends_with(std::string_view(word).substr(0, size))) longest = size;
      }
    }
    return longest;
  }

  const tokenizer::Tokenizer& words_;
  const GenerateOptions& options_;
  TokenSampler sampler_;
  std::vector<std::int64_t> tokens_;
  Generated out_;
  std::size_t told_ = 0;  // bytes of the text that were streamed
  bool over_ = false;
};

void check_room(const Text& text, std::size_t number, std::int64_t context) {
  const auto tokens = static_cast<std::int64_t>(text.tokens().size());
  if (context < 2) {
    throw Error(Fault::config, "generate: the model's context is ", context,
                " token, which leaves none for an answer; train one with a longer "
                "data.sequence");
  }
  if (tokens == 0) {
    throw Error(Fault::config, "generate: prompt ", number + 1,
                " has no tokens, and the tokenizer has no ", tokenizer::kEndOfText,
                " to begin with; write a prompt");
  }
  if (tokens < context) return;
  throw Error(Fault::config, "generate: prompt ", number + 1, " has ", tokens,
              " tokens; the model's context is ", context,
              ", and the answer needs room in it, too: shorten the prompt by at least ",
              tokens - context + 1);
}

// Takes texts that are over out of the batch. Returns whether any is left.
bool drop_finished(const std::vector<Text>& texts, std::vector<std::size_t>& rows,
                   Decoder& decoder) {
  std::vector<std::size_t> left;
  std::vector<std::int64_t> kept;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (texts[rows[row]].is_over()) continue;
    left.push_back(rows[row]);
    kept.push_back(static_cast<std::int64_t>(row));
  }
  if (left.size() < rows.size() && !left.empty()) decoder.keep(kept);
  rows = std::move(left);
  return !rows.empty();
}

}  // namespace

std::string_view name_of(Ended ended) noexcept {
  switch (ended) {
    case Ended::max_tokens:
      return "max_tokens";
    case Ended::end_of_text:
      return "end_of_text";
    case Ended::stop_word:
      return "stop_word";
    case Ended::context_full:
      break;
  }
  return "context_full";
}

std::size_t whole_letters(std::string_view bytes) noexcept {
  // Looks for the begin of a letter among the last bytes that has not all of them.
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, bytes.size()); ++back) {
    const auto byte = static_cast<unsigned char>(bytes[bytes.size() - back]);
    if (byte < 0x80) break;
    if (byte < 0xC0) continue;  // not the first of a letter
    const std::size_t needed = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
    return needed > back ? bytes.size() - back : bytes.size();
  }
  return bytes.size();
}

void check_vocabulary(const Decoder& decoder, const tokenizer::Tokenizer& words) {
  const auto tokens = static_cast<std::int64_t>(words.size());
  if (tokens <= decoder.vocabulary()) return;
  throw Error(Fault::config, "generate: the tokenizer has ", tokens,
              " tokens, the model's vocabulary ", decoder.vocabulary(),
              "; name the tokenizer that it was trained with (--tokenizer)");
}

std::vector<Generated> generate(const TextModel& model,
                                const std::vector<std::string>& prompts,
                                const GenerateOptions& options) {
  std::vector<std::vector<std::int64_t>> tokens;
  for (const auto& prompt : prompts) {
    const auto encoded = model.words.encode(prompt);
    tokens.emplace_back(encoded.begin(), encoded.end());
  }
  return generate_from(model, std::move(tokens), options);
}

std::vector<Generated> generate_from(const TextModel& model,
                                     std::vector<std::vector<std::int64_t>> prompts,
                                     const GenerateOptions& options) {
  auto& decoder = model.decoder;
  const auto& words = model.words;
  check_vocabulary(decoder, words);
  std::vector<Text> texts;
  std::int64_t longest = 0;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    texts.emplace_back(words, options, static_cast<std::int64_t>(i));
    texts[i].begin(std::move(prompts[i]));
    check_room(texts[i], i, decoder.context());
    longest = std::max(longest, texts[i].result().prompt_tokens);
  }
  const auto room = std::min(decoder.context(), longest + options.max_tokens);
  decoder.begin(static_cast<std::int64_t>(texts.size()), room);
  const auto take = [&](std::size_t i, const torch::Tensor& logits) {
    const std::span<const float> row(logits.const_data_ptr<float>(),
                                     static_cast<std::size_t>(logits.numel()));
    // Another token has to fit behind this one, or it is the last.
    const auto letters = texts[i].take(row, decoder.context());
    if (options.stream && !letters.empty()) options.stream(i, letters);
  };
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto logits =
        decoder.prefill(static_cast<std::int64_t>(i), texts[i].tokens());
    take(i, logits.cpu());
  }
  std::vector<std::size_t> rows(texts.size());  // the texts that are not over
  std::iota(rows.begin(), rows.end(), 0);
  while (drop_finished(texts, rows, decoder)) {
    std::vector<std::int64_t> last;
    for (const auto i : rows) last.push_back(texts[i].tokens().back());
    const auto logits = decoder.step(last).cpu();
    for (std::size_t row = 0; row < rows.size(); ++row) {
      take(rows[row], logits[static_cast<std::int64_t>(row)]);
    }
  }
  std::vector<Generated> results;
  for (auto& text : texts) results.push_back(std::move(text.result()));
  return results;
}

}  // namespace lockstep::generate
