// GPT-2's alphabet of bytes: 188 printable ones of Latin-1 stand for themselves, the
// other 68 are U+0100 and up, in order.
#include <array>

#include "lockstep/tokenizer/detail/utf8.h"
#include "lockstep/tokenizer/vocabulary.h"

namespace lockstep::tokenizer {
namespace {

constexpr char32_t kFirstShifted = 0x100;
constexpr std::size_t kShifted = 68;

constexpr bool is_printable(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

struct Alphabet {
  std::array<char32_t, 256> letters{};
  std::array<unsigned char, kFirstShifted + kShifted> bytes{};
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  char32_t next = kFirstShifted;
  for (int byte = 0; byte < 256; ++byte) {
    const auto letter = is_printable(byte) ? static_cast<char32_t>(byte) : next++;
    alphabet.letters[static_cast<std::size_t>(byte)] = letter;
    alphabet.bytes[letter] = static_cast<unsigned char>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

bool is_letter_of_a_byte(char32_t letter) {
  if (letter >= kAlphabet.bytes.size()) return false;
  return letter >= kFirstShifted || is_printable(static_cast<int>(letter));
}

}  // namespace

std::string to_letters(std::string_view bytes) {
  std::string letters;
  for (const char byte : bytes) {
    append_utf8(letters, kAlphabet.letters[static_cast<unsigned char>(byte)]);
  }
  return letters;
}

std::optional<std::string> from_letters(std::string_view letters) {
  if (valid_prefix(letters) != letters.size()) return std::nullopt;
  std::string bytes;
  for (const char* at = letters.data(); at < letters.data() + letters.size();) {
    const auto letter = decode_one(at);
    if (!is_letter_of_a_byte(letter.code)) return std::nullopt;
    bytes += static_cast<char>(kAlphabet.bytes[letter.code]);
    at += letter.length;
  }
  return bytes;
}

std::optional<Token> Vocabulary::find_added(std::string_view text) const {
  for (const auto& token : added) {
    if (token.text == text) return token.id;
  }
  return std::nullopt;
}

}  // namespace lockstep::tokenizer
