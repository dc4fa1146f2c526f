// The order of everything here is that of Hugging Face's BpeTrainer, so that ties are
// broken alike: of pairs that occur equally often the one with the lowest ids is first.
#include "lockstep/tokenizer/train.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"

namespace lockstep::tokenizer {
namespace {

using Pair = std::uint64_t;  // left id, right id: compares as the two do

Pair pair_of(Token left, Token right) {
  return Pair{left} << 32 | right;
}

struct PairHash {
  std::size_t operator()(Pair pair) const noexcept { return scramble(pair); }
};
template <typename Value>
using PairMap = std::unordered_map<Pair, Value, PairHash>;

// A pair to merge. The count may be out of date, which is seen when it is its turn.
struct PairCandidate {
  std::int64_t count = 0;
  Pair pair = 0;
  std::vector<std::uint32_t> words;  // that have had it when this was queued

  friend bool operator<(const PairCandidate& a, const PairCandidate& b) {
    return a.count != b.count ? a.count < b.count : a.pair > b.pair;
  }
};

struct Word {
  std::vector<Token> tokens;
  std::int64_t count = 0;
};

class BpeTraining {
 public:
  BpeTraining(const WordCounts& words, const TrainOptions& options)
      : options_(options) {
    for (const auto& special : options.special_tokens) add_token(special, special);
    add_bytes();
    for (const auto& [bytes, count] : words.words()) add_word(bytes, count);
    for (auto& [pair, where] : found_in_) enqueue(pair, std::move(where));
    found_in_.clear();
  }

  Vocabulary run() {
    while (vocabulary_.bytes.size() < options_.vocab_size && !queue_.empty()) {
      std::pop_heap(queue_.begin(), queue_.end());
      auto best = std::move(queue_.back());
      queue_.pop_back();
      const auto now = counts_[best.pair];
      if (best.count != now) {
        best.count = now;
        push(std::move(best));
        continue;
      }
      if (now < 1 || static_cast<std::uint64_t>(now) < options_.min_frequency) break;
      merge(best);
    }
    finish();
    return std::move(vocabulary_);
  }

 private:
  Token add_token(const std::string& letters, const std::string& bytes) {
    const auto id = static_cast<Token>(vocabulary_.bytes.size());
    const auto [found, is_new] = ids_.emplace(letters, id);
    if (is_new) vocabulary_.bytes.push_back(bytes);
    return found->second;
  }

  // In the order of their letters, not of the bytes.
  void add_bytes() {
    std::vector<std::pair<std::string, std::string>> alphabet;
    for (int byte = 0; byte < 256; ++byte) {
      const std::string bytes(1, static_cast<char>(byte));
      alphabet.emplace_back(to_letters(bytes), bytes);
    }
    std::sort(alphabet.begin(), alphabet.end());  // UTF-8 sorts as code points do
    for (const auto& [letters, bytes] : alphabet) {
      vocabulary_.byte_tokens[static_cast<unsigned char>(bytes[0])] =
          add_token(letters, bytes);
    }
  }

  void add_word(const std::string& bytes, std::uint64_t count) {
    Word word{.count = static_cast<std::int64_t>(count)};
    for (const char byte : bytes) {
      word.tokens.push_back(vocabulary_.byte_tokens[static_cast<unsigned char>(byte)]);
    }
    const auto number = static_cast<std::uint32_t>(words_.size());
    for (std::size_t i = 0; i + 1 < word.tokens.size(); ++i) {
      change(pair_of(word.tokens[i], word.tokens[i + 1]), word.count, number);
    }
    words_.push_back(std::move(word));
  }

  void change(Pair pair, std::int64_t by, std::uint32_t word) {
    counts_[pair] += by;
    if (by < 0) return;
    auto& where = found_in_[pair];
    if (where.empty() || where.back() != word) where.push_back(word);
  }

  void enqueue(Pair pair, std::vector<std::uint32_t> where) {
    const auto count = counts_[pair];
    if (count > 0) push({count, pair, std::move(where)});
  }

  void push(PairCandidate candidate) {
    queue_.push_back(std::move(candidate));
    std::push_heap(queue_.begin(), queue_.end());
  }

  void merge(const PairCandidate& best) {
    const auto left = static_cast<Token>(best.pair >> 32);
    const auto right = static_cast<Token>(best.pair);
    const auto bytes = vocabulary_.bytes[left] + vocabulary_.bytes[right];
    // Another pair may have made the same token before.
    const auto result = add_token(to_letters(bytes), bytes);
    const Merge made{left, right, result};
    vocabulary_.merges.push_back(made);
    for (const auto word : best.words) merge_in(word, made);
    for (auto& [pair, where] : found_in_) enqueue(pair, std::move(where));
    found_in_.clear();
    constexpr std::size_t kEvery = 256;
    if (options_.progress && vocabulary_.bytes.size() % kEvery == 0) {
      options_.progress(vocabulary_.bytes.size());
    }
  }

  // In place, from left to right: what stands left of a pair may be a new token.
  void merge_in(std::uint32_t number, const Merge& made) {
    const auto [left, right, result] = made;
    auto& word = words_[number];
    auto& tokens = word.tokens;
    std::size_t to = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const bool matches =
          tokens[i] == left && i + 1 < tokens.size() && tokens[i + 1] == right;
      if (!matches) {
        tokens[to++] = tokens[i];
        continue;
      }
      if (to > 0) {
        change(pair_of(tokens[to - 1], left), -word.count, number);
        change(pair_of(tokens[to - 1], result), word.count, number);
      }
      if (i + 2 < tokens.size()) {
        change(pair_of(right, tokens[i + 2]), -word.count, number);
        change(pair_of(result, tokens[i + 2]), word.count, number);
      }
      tokens[to++] = result;
      ++i;
    }
    tokens.resize(to);
  }

  void finish() {
    for (const auto& text : options_.special_tokens) {
      vocabulary_.added.push_back({.text = text, .id = ids_.at(text)});
    }
    // A pair that was queued twice has its last rank, since later ones overwrite.
    auto& merges = vocabulary_.merges;
    PairMap<std::size_t> last;
    for (std::size_t i = 0; i < merges.size(); ++i) {
      last[pair_of(merges[i].left, merges[i].right)] = i;
    }
    if (last.size() == merges.size()) return;
    std::vector<Merge> kept;
    for (std::size_t i = 0; i < merges.size(); ++i) {
      if (last[pair_of(merges[i].left, merges[i].right)] == i)
        kept.push_back(merges[i]);
    }
    merges = std::move(kept);
  }

  const TrainOptions& options_;
  Vocabulary vocabulary_;
  std::unordered_map<std::string, Token> ids_;  // by letters
  std::vector<Word> words_;
  PairMap<std::int64_t> counts_;
  PairMap<std::vector<std::uint32_t>> found_in_;  // pairs that are new in this round
  std::vector<PairCandidate> queue_;              // a heap
};

}  // namespace

Vocabulary train(const WordCounts& words, const TrainOptions& options) {
  const auto least = 256 + options.special_tokens.size();
  if (options.vocab_size < least) {
    throw Error(Fault::config, "tokenizer: a vocabulary of ", options.vocab_size,
                " has no room for the 256 bytes and the special tokens; ask for at "
                "least ",
                least);
  }
  if (words.words().empty()) {
    throw Error(Fault::config,
                "tokenizer: there is no text to train on; name files that have some");
  }
  return BpeTraining(words, options).run();
}

}  // namespace lockstep::tokenizer
