#include <mutex>

#include "lockstep/base/in_parallel.h"
#include "lockstep/tokenizer/detail/scanner.h"
#include "lockstep/tokenizer/detail/utf8.h"
#include "lockstep/tokenizer/train.h"

namespace lockstep::tokenizer {
namespace {

constexpr std::size_t kPieceBytes = 4 << 20;

void count_lines(WordCounts& counts, std::string_view text,
                 const Categories& categories) {
  while (!text.empty()) {
    const auto end = text.find('\n');
    const auto size = end == text.npos ? text.size() : end + 1;
    counts.count(text.substr(0, size), categories);
    text.remove_prefix(size);
  }
}

// Returns pieces that end with a line, so that every line is whole.
std::vector<std::string_view> cut_at_lines(std::string_view text) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const auto end = text.find('\n', std::min(kPieceBytes, text.size()));
    const auto size = end == text.npos ? text.size() : end + 1;
    pieces.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return pieces;
}

}  // namespace

void WordCounts::count(std::string_view text, const Categories& categories) {
  if (valid_prefix(text) != text.size()) {
    return count(replace_invalid(text), categories);
  }
  Scanner scanner(categories, text);
  while (!scanner.done()) {
    const auto word = scanner.next();
    auto found = words_.find(word);
    if (found == words_.end()) found = words_.emplace(std::string(word), 0).first;
    ++found->second;
  }
}

void WordCounts::add(const WordCounts& other) {
  for (const auto& [word, count] : other.words_) words_[word] += count;
}

WordCounts count_words(const std::vector<std::string_view>& texts, bool by_line,
                       std::size_t threads) {
  std::vector<std::string_view> pieces;
  for (const auto text : texts) {
    const auto parts = by_line ? cut_at_lines(text) : std::vector{text};
    pieces.insert(pieces.end(), parts.begin(), parts.end());
  }
  const Categories categories;
  WordCounts all;
  std::mutex mutex;  // guards `all`
  in_parallel(pieces.size(), threads, [&](std::size_t i) {
    WordCounts counts;
    if (by_line) {
      count_lines(counts, pieces[i], categories);
    } else {
      counts.count(pieces[i], categories);
    }
    const std::scoped_lock lock(mutex);
    all.add(counts);
  });
  return all;
}

}  // namespace lockstep::tokenizer
