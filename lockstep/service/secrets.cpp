#include "lockstep/service/secrets.h"

#include <array>
#include <vector>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "lockstep/base/error.h"

namespace lockstep::service {
namespace {

std::string hex_of(const unsigned char* bytes, std::size_t size) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * size);
  for (std::size_t i = 0; i < size; ++i) {
    text += kDigits[bytes[i] >> 4];
    text += kDigits[bytes[i] & 15];
  }
  return text;
}

EVP_MD_CTX* digest(void* context) {
  return static_cast<EVP_MD_CTX*>(context);
}

}  // namespace

std::string random_hex(std::size_t bytes) {
  std::vector<unsigned char> buffer(bytes);
  if (RAND_bytes(buffer.data(), static_cast<int>(bytes)) != 1) {
    throw Error(Fault::hardware, "the system gives no random numbers");
  }
  return hex_of(buffer.data(), buffer.size());
}

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  LOCKSTEP_CHECK(context_ != nullptr);
  EVP_DigestInit_ex(digest(context_), EVP_sha256(), nullptr);
}

Sha256::~Sha256() {
  EVP_MD_CTX_free(digest(context_));
}

void Sha256::add(std::string_view bytes) {
  EVP_DigestUpdate(digest(context_), bytes.data(), bytes.size());
}

std::string Sha256::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> result{};
  unsigned size = 0;
  EVP_DigestFinal_ex(digest(context_), result.data(), &size);
  return hex_of(result.data(), size);
}

std::string sha256(std::string_view bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.hex();
}

std::string signature(std::string_view key, std::string_view bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> result{};
  unsigned size = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
       result.data(), &size);
  return hex_of(result.data(), size);
}

bool same_secret(std::string_view a, std::string_view b) noexcept {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace lockstep::service
