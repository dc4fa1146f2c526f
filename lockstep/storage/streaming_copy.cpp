#include "lockstep/storage/streaming_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace lockstep::storage {
namespace {

// Hashed, then copied while it is in the cache.
constexpr std::size_t kPortion = 64 << 10;

#ifdef __SSE2__

constexpr std::size_t kVector = sizeof(__m128i);
constexpr std::size_t kLine = 4 * kVector;

void stream(std::byte* to, const std::byte* from, std::size_t bytes) {
  const auto past = reinterpret_cast<std::uintptr_t>(to) % kLine;
  const auto head = std::min(bytes, past == 0 ? 0 : kLine - past);
  std::memcpy(to, from, head);
  std::size_t at = head;
  for (; at + kLine <= bytes; at += kLine) {
    __m128i line[4];
    std::memcpy(line, from + at, kLine);
    auto* out = reinterpret_cast<__m128i*>(to + at);
    for (int i = 0; i < 4; ++i) _mm_stream_si128(out + i, line[i]);
  }
  std::memcpy(to + at, from + at, bytes - at);
}

// Stores past the cache are not ordered with others; whoever is told of them after this
// sees them.
void end_stream() {
  _mm_sfence();
}

#else

void stream(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}
void end_stream() {}

#endif

}  // namespace

void copy_and_digest(std::byte* to, std::span<const std::byte> from,
                     BlockDigests& digests) {
  for (std::size_t at = 0; at < from.size(); at += kPortion) {
    const auto part = from.subspan(at, std::min(kPortion, from.size() - at));
    digests.add(part);
    stream(to + at, part.data(), part.size());
  }
  end_stream();
}

}  // namespace lockstep::storage
