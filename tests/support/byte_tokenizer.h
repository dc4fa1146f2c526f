#pragma once

#include <filesystem>
#include <string>

#include "tests/support/support.h"

namespace lockstep::test {

// Writes a tokenizer without merges: a byte is the token of its value, 256 the end of a
// text. Returns its path.
inline std::filesystem::path write_byte_tokenizer(const std::filesystem::path& folder) {
  constexpr const char* kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (unsigned byte = 0; byte < 256; ++byte) {
    text += kDigits[byte >> 2];
    text += kDigits[(byte & 3) << 4];
    text += "== " + std::to_string(byte) + "\n";
  }
  const auto path = folder / "bytes.tiktoken";
  write_file(path, text);
  return path;
}

}  // namespace lockstep::test
