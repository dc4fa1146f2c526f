#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::storage {

// XXH3-128: finds damage by a disk or a cable; it does not stop a forger.
struct Digest {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  friend auto operator<=>(const Digest&, const Digest&) = default;
};

Digest digest_of(std::span<const std::byte> bytes);
Digest digest_of(std::string_view text);

// Returns the digest of a file from those of its blocks, in order.
Digest digest_of(const std::vector<Digest>& blocks);

// The digests of the blocks of a stream whose bytes come in pieces.
class BlockDigests {
 public:
  explicit BlockDigests(std::int64_t block_bytes);
  ~BlockDigests();

  void add(std::span<const std::byte> bytes);
  std::vector<Digest> finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Returns 32 lower-case hexadecimal digits, the high half first, as xxhsum prints them.
std::string to_hex(const Digest& digest);

// Reads the text of to_hex(); empty for any other text, upper-case digits included.
std::optional<Digest> digest_from_hex(std::string_view hex);

}  // namespace lockstep::storage
