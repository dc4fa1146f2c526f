#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace lockstep::monitor::detail {

// Writes one message of protocol buffers, field by field. LibTorch brings a library of
// its own for this; two of them in one process do not get along.
class Message {
 public:
  Message& varint(int field, std::uint64_t value) {
    key(field, 0);
    raw_varint(value);
    return *this;
  }
  Message& real(int field, double value) {
    key(field, 1);
    return fixed(std::bit_cast<std::uint64_t>(value));
  }
  Message& single(int field, float value) {
    key(field, 5);
    return fixed(std::bit_cast<std::uint32_t>(value));
  }
  Message& text(int field, std::string_view value) {
    key(field, 2);
    raw_varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& message(int field, const Message& value) {
    return text(field, value.bytes_);
  }

  const std::string& bytes() const noexcept { return bytes_; }

 private:
  void key(int field, unsigned type) {
    raw_varint(static_cast<std::uint64_t>(field) << 3 | type);
  }
  void raw_varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  template <typename T>
  Message& fixed(T value) {
    for (std::size_t i = 0; i < sizeof value; ++i) {
      bytes_ += static_cast<char>(value >> 8 * i & 0xFF);
    }
    return *this;
  }

  std::string bytes_;
};

// A number as the formats of other programs store it: lowest byte first.
template <typename T>
std::string little_endian(T value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof value; ++i) {
    bytes += static_cast<char>(value >> 8 * i & 0xFF);
  }
  return bytes;
}

}  // namespace lockstep::monitor::detail
