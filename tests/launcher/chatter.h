#pragma once

#include <cstdint>
#include <string>

namespace lockstep::test {

// Line `number` of a stream ('o' or 'e') of a rank, with its newline: of all lengths,
// some of several pipe pages, and known from its number.
inline std::string chatter_line(int rank, char stream, int number) {
  auto mixed =
      static_cast<std::uint32_t>(number * 2654435761U + rank * 40503U + stream);
  mixed ^= mixed >> 13;
  const auto length = mixed % 97 == 0 ? mixed % 20'000 : mixed % 200;
  auto line = std::to_string(rank) + stream + std::to_string(number) + " ";
  line.append(length, static_cast<char>('a' + mixed % 26));
  return line + "\n";
}

}  // namespace lockstep::test
