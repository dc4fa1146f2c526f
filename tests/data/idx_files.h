#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <zlib.h>

#include "tests/support/support.h"

namespace lockstep::test {

inline std::string big_endian(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

// Bytes of an IDX file of unsigned bytes.
inline std::string idx_bytes(const std::vector<std::uint32_t>& sizes,
                             const std::string& content) {
  std::string bytes{0, 0, 8, static_cast<char>(sizes.size())};
  for (const auto size : sizes) bytes += big_endian(size);
  return bytes + content;
}

// n images of 2 x 3 pixels: image i is filled with i.
inline std::string idx_images(std::uint32_t n) {
  std::string pixels;
  for (std::uint32_t i = 0; i < n; ++i) pixels += std::string(6, static_cast<char>(i));
  return idx_bytes({n, 2, 3}, pixels);
}

// Labels 0 1 2 0 1 2 ...
inline std::string idx_labels(std::uint32_t n) {
  std::string labels;
  for (std::uint32_t i = 0; i < n; ++i) labels += static_cast<char>(i % 3);
  return idx_bytes({n}, labels);
}

inline void write_gzip(const Path& path, const std::string& content) {
  const gzFile file = ::gzopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(::gzwrite(file, content.data(), static_cast<unsigned>(content.size())),
            static_cast<int>(content.size()));
  ASSERT_EQ(::gzclose(file), Z_OK);
}

}  // namespace lockstep::test
