#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"

// The messages that ranks leave for each other in the store: plain data of known
// layout, with a limit on every length. Reading any bytes gives a message or
// Fault::comm.
namespace lockstep::comm::wire {

inline constexpr std::size_t kLongestMessage = 64 << 10;
inline constexpr std::size_t kLongestText = 4 << 10;
inline constexpr std::size_t kMostFacts = 64;
inline constexpr std::size_t kLongestFact = 500;  // name and value

// A fact that must be the same on every rank.
struct Fact {
  std::string name;   // "config"
  std::string value;  // "3f2a..."
};

// The message of a rank about itself when it joins.
struct Hello {
  int rank = 0;
  int world_size = 1;
  int node = 0;
  std::string host;
  std::int64_t pid = 0;
  std::string machine;        // the same for ranks that can share memory
  std::int64_t instance = 0;  // random: tells a rank that comes back from a second one
  std::vector<Fact> facts;
};

// The message of rank 0 to all ranks when all have joined, or when they can not go on.
struct Verdict {
  std::string problem;  // "" : go on
  Fault fault = Fault::comm;
  bool one_machine = false;
};

std::string encode(const Hello& hello);
std::string encode(const Verdict& verdict);
Hello decode_hello(std::string_view bytes);
Verdict decode_verdict(std::string_view bytes);

}  // namespace lockstep::comm::wire
