#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

// 64-bit FNV-1a: the same on every machine and in every build. Tells things apart,
// guards nothing. Pass the result of one piece as `hash` of the next.
constexpr std::uint64_t hash_of(std::string_view bytes,
                                std::uint64_t hash = 0xcbf29ce484222325ULL) {
  for (const char byte : bytes) {
    hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3ULL;
  }
  return hash;
}

// The finaliser of splitmix64: every bit of the input reaches every bit of the output.
// Stored data positions rely on it: it never changes.
constexpr std::uint64_t scramble(std::uint64_t x) noexcept {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

}  // namespace lockstep
