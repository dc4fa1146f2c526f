#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::text {

std::vector<std::string> split(std::string_view text, char separator);
std::string_view trim(std::string_view text) noexcept;
std::string lower(std::string_view text);
bool starts_with(std::string_view text, std::string_view prefix) noexcept;
std::string join(std::span<const std::string> parts, std::string_view separator);

// Whole-text parses: nothing may be left over; "1e3" is an integer (1000), "1.5" is
// not.
std::optional<long long> to_integer(std::string_view text);
std::optional<double> to_double(std::string_view text);

// Returns the shortest text that reads back to the same bits.
std::string from_double(double value);

// Returns the number of insertions, deletions, replacements and swaps of neighbours
// between two words.
std::size_t distance(std::string_view a, std::string_view b);

// Returns the candidate that a user most likely meant by `word`: within two edits (one
// for words of up to three letters), or the only one that `word` is a prefix of.
std::optional<std::string> closest(std::string_view word,
                                   std::span<const std::string> candidates);

// Returns "; did you mean 'x'?" or "".
std::string did_you_mean(std::string_view word,
                         std::span<const std::string> candidates);

// Returns whether one of the patterns (`*` is any text), separated by commas, fits all
// of the name.
bool matches_any(std::string_view patterns, const std::string& name);

// Returns the offset of the first byte that is not UTF-8, if there is one.
std::optional<std::size_t> first_invalid_utf8(std::string_view bytes) noexcept;

// Returns the number of terminal columns for `text`, which is UTF-8 without wide
// characters.
std::size_t columns(std::string_view text) noexcept;

// Returns a table with aligned columns: the first row is the header, columns listed in
// `right_aligned` hold numbers.
std::string table(const std::vector<std::vector<std::string>>& rows,
                  const std::vector<std::size_t>& right_aligned = {});

// Formats 1234567 as "1,234,567".
std::string with_commas(long long value);

}  // namespace lockstep::text
