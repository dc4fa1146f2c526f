#include "lockstep/base/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <numeric>

#include <fmt/format.h>
#include <fnmatch.h>

namespace lockstep::text {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (true) {
    const auto end = text.find(separator, begin);
    parts.emplace_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

std::string_view trim(std::string_view text) noexcept {
  constexpr std::string_view kSpace = " \t\r\n";
  const auto begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (auto& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

bool starts_with(std::string_view text, std::string_view prefix) noexcept {
  return text.substr(0, prefix.size()) == prefix;
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  std::string result;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) result += separator;
    result += parts[i];
  }
  return result;
}

std::optional<double> to_double(std::string_view text) {
  if (text.size() > 1 && text.front() == '+') text.remove_prefix(1);
  double value = 0;
  const auto* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc{} || stop != end) return std::nullopt;
  return value;
}

std::optional<long long> to_integer(std::string_view text) {
  if (text.size() > 1 && text.front() == '+') text.remove_prefix(1);
  long long value = 0;
  const auto* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (!text.empty() && error == std::errc{} && stop == end) return value;
  // Users write large or computed counts as 1e6 or 5.0.
  const auto real = to_double(text);
  constexpr double kExact =
      9007199254740992.0;  // 2^53: beyond it not every integer exists
  if (!real || std::abs(*real) > kExact || *real != std::trunc(*real))
    return std::nullopt;
  return static_cast<long long>(*real);
}

std::string from_double(double value) {
  return fmt::format("{}", value);  // fmt writes the shortest form that reads back
}

std::size_t distance(std::string_view a, std::string_view b) {
  const std::size_t width = b.size() + 1;
  std::vector<std::size_t> before(width), last(width), now(width);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        now[j] = std::min(now[j], before[j - 2] + 1);
      }
    }
    before.swap(last);
    last.swap(now);
  }
  return last[b.size()];
}

std::optional<std::string> closest(std::string_view word,
                                   std::span<const std::string> candidates) {
  const std::string wanted = lower(word);
  const std::size_t limit = wanted.size() <= 3 ? 1 : 2;
  std::optional<std::string> best;
  std::size_t best_distance = limit + 1;
  for (const auto& candidate : candidates) {
    const auto d = distance(wanted, lower(candidate));
    if (d < best_distance) {
      best_distance = d;
      best = candidate;
    }
  }
  if (best || wanted.size() < 2) return best;
  for (const auto& candidate : candidates) {
    if (!starts_with(lower(candidate), wanted)) continue;
    if (best) return std::nullopt;  // two candidates: a guess would be a coin toss
    best = candidate;
  }
  return best;
}

std::string did_you_mean(std::string_view word,
                         std::span<const std::string> candidates) {
  const auto guess = closest(word, candidates);
  return guess ? fmt::format("; did you mean '{}'?", *guess) : std::string();
}

bool matches_any(std::string_view patterns, const std::string& name) {
  for (const auto& one : split(patterns, ',')) {
    const std::string pattern(trim(one));
    if (!pattern.empty() && ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0) {
      return true;
    }
  }
  return false;
}

namespace {

// Returns the length of the UTF-8 sequence that starts at `bytes`, or 0 if there is
// none: the ranges are those of the Unicode standard's table of well-formed sequences.
std::size_t sequence_length(std::string_view bytes) noexcept {
  const auto at = [&](std::size_t i) { return static_cast<std::uint8_t>(bytes[i]); };
  const auto follows = [&](std::size_t i, int low = 0x80, int high = 0xBF) {
    return i < bytes.size() && at(i) >= low && at(i) <= high;
  };
  const int first = at(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const int low = first == 0xE0 ? 0xA0 : 0x80;
    const int high = first == 0xED ? 0x9F : 0xBF;  // surrogates are not characters
    return follows(1, low, high) && follows(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const int low = first == 0xF0 ? 0x90 : 0x80;
    const int high = first == 0xF4 ? 0x8F : 0xBF;
    return follows(1, low, high) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::optional<std::size_t> first_invalid_utf8(std::string_view bytes) noexcept {
  std::size_t at = 0;
  while (at < bytes.size()) {
    const auto length = sequence_length(bytes.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return std::nullopt;
}

std::size_t columns(std::string_view text) noexcept {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string table(const std::vector<std::vector<std::string>>& rows,
                  const std::vector<std::size_t>& right_aligned) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], columns(row[i]));
    }
  }
  std::string result;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - columns(row[i]), ' ');
      const bool right = std::find(right_aligned.begin(), right_aligned.end(), i) !=
                         right_aligned.end();
      line += (i > 0 ? "  " : "") + (right ? padding + row[i] : row[i] + padding);
    }
    result += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return result;
}

std::string with_commas(long long value) {
  std::string digits = fmt::format("{}", value);
  const std::size_t sign = value < 0 ? 1 : 0;
  for (std::size_t at = digits.size(); at > sign + 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

}  // namespace lockstep::text
