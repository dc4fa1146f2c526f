#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::service {

// Returns so many random bytes of the system as hexadecimal digits.
std::string random_hex(std::size_t bytes);

// Returns the digest as 64 hexadecimal digits.
std::string sha256(std::string_view bytes);

// The same over pieces.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void add(std::string_view bytes);
  std::string hex();  // once, at the end

 private:
  void* context_;
};

// HMAC-SHA256 as hexadecimal digits.
std::string signature(std::string_view key, std::string_view bytes);

// Compares in a time that does not depend on where they differ.
bool same_secret(std::string_view a, std::string_view b) noexcept;

}  // namespace lockstep::service
