#include "lockstep/storage/digest.h"

#include <algorithm>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace lockstep::storage {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";
constexpr std::size_t kHexDigits = 32;

Digest digest_of_memory(const void* data, std::size_t size) {
  const auto hash = XXH3_128bits(data, size);
  return {hash.high64, hash.low64};
}

void append_big_endian(std::string& bytes, std::uint64_t value) {
  for (int shift = 56; shift >= 0; shift -= 8) {
    bytes += static_cast<char>(value >> shift & 0xFF);
  }
}

}  // namespace

Digest digest_of(std::span<const std::byte> bytes) {
  return digest_of_memory(bytes.data(), bytes.size());
}

Digest digest_of(std::string_view text) {
  return digest_of_memory(text.data(), text.size());
}

Digest digest_of(const std::vector<Digest>& blocks) {
  std::string bytes;
  bytes.reserve(blocks.size() * sizeof(Digest));
  for (const auto& block : blocks) {
    append_big_endian(bytes, block.high);
    append_big_endian(bytes, block.low);
  }
  return digest_of(std::string_view(bytes));
}

struct BlockDigests::State {
  XXH3_state_t hash;
  std::int64_t block_bytes = 0;
  std::int64_t filled = 0;  // of the block
  std::vector<Digest> blocks;

  void end_block() {
    const auto digest = XXH3_128bits_digest(&hash);
    blocks.push_back({digest.high64, digest.low64});
    XXH3_128bits_reset(&hash);
    filled = 0;
  }
};

BlockDigests::BlockDigests(std::int64_t block_bytes)
    : state_(std::make_unique<State>()) {
  state_->block_bytes = block_bytes;
  XXH3_128bits_reset(&state_->hash);
}

BlockDigests::~BlockDigests() = default;

void BlockDigests::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto room = static_cast<std::size_t>(state_->block_bytes - state_->filled);
    const auto part = bytes.first(std::min(room, bytes.size()));
    XXH3_128bits_update(&state_->hash, part.data(), part.size());
    state_->filled += static_cast<std::int64_t>(part.size());
    bytes = bytes.subspan(part.size());
    if (state_->filled == state_->block_bytes) state_->end_block();
  }
}

std::vector<Digest> BlockDigests::finish() {
  if (state_->filled > 0) state_->end_block();
  return std::move(state_->blocks);
}

std::string to_hex(const Digest& digest) {
  std::string hex;
  hex.reserve(kHexDigits);
  for (const auto half : {digest.high, digest.low}) {
    for (int shift = 60; shift >= 0; shift -= 4) hex += kDigits[half >> shift & 0xF];
  }
  return hex;
}

std::optional<Digest> digest_from_hex(std::string_view hex) {
  if (hex.size() != kHexDigits) return std::nullopt;
  std::uint64_t halves[2] = {0, 0};
  for (std::size_t i = 0; i < kHexDigits; ++i) {
    const auto digit = kDigits.find(hex[i]);
    if (digit == std::string_view::npos) return std::nullopt;
    auto& half = halves[i / 16];
    half = half << 4 | digit;
  }
  return Digest{halves[0], halves[1]};
}

}  // namespace lockstep::storage
