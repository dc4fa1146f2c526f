#include "lockstep/data/detail/tar.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::data::detail {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::size_t kBlock = 512;
constexpr std::size_t kNameBytes = 100;
constexpr std::size_t kPrefixBytes = 155;
constexpr std::size_t kSizeAt = 124, kChecksumAt = 148, kKindAt = 156, kMagicAt = 257,
                      kPrefixAt = 345;
constexpr std::size_t kLongestNumber = 12;

class TarReader {
 public:
  TarReader(Bytes all, const std::string& path) : all_(all), path_(path) {}

  std::vector<TarEntry> entries() {
    check_kind();
    std::vector<TarEntry> entries;
    while (at_ + kBlock <= all_.size() && !is_end()) {
      check_sum();
      const auto kind = static_cast<char>(all_[at_ + kKindAt]);
      const auto name = name_here();
      const auto size = std::exchange(long_size_, std::nullopt)
                            .value_or(number(kSizeAt, kLongestNumber));
      const auto begin = at_ + kBlock;
      if (size > all_.size() - begin) {
        refuse("is truncated: '", name, "' has ", size, " bytes, ", all_.size() - begin,
               " are there");
      }
      const auto bytes = all_.subspan(begin, size);
      at_ =
          begin + std::min((size + kBlock - 1) / kBlock * kBlock, all_.size() - begin);
      if (take_long_name(kind, bytes)) continue;
      const bool is_file = kind == '0' || kind == '\0' || kind == '7';
      if (is_file) entries.push_back({long_name_.value_or(name), bytes});
      long_name_.reset();
    }
    check_end();
    return entries;
  }

 private:
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    throw Error(Fault::io, "data: '", path_, "' ", parts..., "; make it again");
  }

  std::string_view text(std::size_t from, std::size_t bytes) const {
    const std::string_view field(
        reinterpret_cast<const char*>(all_.data() + at_ + from), bytes);
    return field.substr(0, field.find('\0'));
  }

  void check_kind() const {
    const auto is = [&](std::string_view magic) {
      return all_.size() >= magic.size() &&
             std::equal(magic.begin(), magic.end(),
                        reinterpret_cast<const char*>(all_.data()));
    };
    if (is("\x1f\x8b") || is("BZh") ||
        is("\xFD"
           "7z") ||
        is("\x28\xB5\x2F\xFD")) {
      throw Error(Fault::io, "data: '", path_,
                  "' is compressed; samples are read in any order, which needs a plain "
                  "tar file: decompress it");
    }
    if (all_.size() < kBlock) refuse("is not a tar file");
  }

  // Two blocks of zeros stand at the end; one is enough.
  bool is_end() const {
    const auto block = all_.subspan(at_, kBlock);
    return std::all_of(block.begin(), block.end(),
                       [](std::byte byte) { return byte == std::byte{0}; });
  }

  // Samples behind the end would be left out in silence.
  void check_end() const {
    const auto rest = all_.subspan(at_);
    const bool is_zero = std::all_of(
        rest.begin(), rest.end(), [](std::byte byte) { return byte == std::byte{0}; });
    if (is_zero) return;
    if (rest.size() < kBlock) refuse("is truncated at byte ", all_.size());
    refuse("has something behind its end at byte ", at_, ", another archive, perhaps");
  }

  // The sum of a header's bytes, with blanks in the place of the sum.
  void check_sum() const {
    std::size_t sum = 8 * std::size_t{' '};
    for (std::size_t i = 0; i < kBlock; ++i) {
      const bool is_sum = i >= kChecksumAt && i < kChecksumAt + 8;
      if (!is_sum) sum += static_cast<unsigned char>(all_[at_ + i]);
    }
    if (sum != number(kChecksumAt, 8)) {
      refuse(at_ == 0 ? "is not a tar file" : "is damaged", " at byte ", at_);
    }
  }

  // Reads an octal number, or GNU's binary form of large ones.
  std::size_t number(std::size_t from, std::size_t bytes) const {
    const auto field = all_.subspan(at_ + from, bytes);
    std::size_t value = 0;
    if ((field[0] & std::byte{0x80}) != std::byte{0}) {
      for (const auto byte : field.last(8)) {
        value = value << 8 | static_cast<std::size_t>(byte);
      }
      return value;
    }
    for (const auto byte : field) {
      const auto letter = static_cast<char>(byte);
      if (letter == ' ' && value == 0) continue;
      if (letter < '0' || letter > '7') break;
      value = value * 8 + static_cast<std::size_t>(letter - '0');
    }
    return value;
  }

  std::string name_here() const {
    const std::string name(text(0, kNameBytes));
    const auto magic = text(kMagicAt, 6);
    const auto prefix = magic == "ustar" ? text(kPrefixAt, kPrefixBytes) : "";
    return prefix.empty() ? name : std::string(prefix) + "/" + name;
  }

  // Keeps a name that the next entry has; returns whether this is one.
  bool take_long_name(char kind, Bytes bytes) {
    const std::string_view body(reinterpret_cast<const char*>(bytes.data()),
                                bytes.size());
    if (kind == 'L') {
      long_name_ = std::string(body.substr(0, body.find('\0')));
      return true;
    }
    if (kind == 'x') take_pax(body);
    return kind == 'x' || kind == 'g' || kind == 'K';
  }

  // Lines are "LENGTH path=NAME\n", the length is that of the whole line.
  void take_pax(std::string_view body) {
    while (!body.empty()) {
      const auto blank = body.find(' ');
      if (blank == std::string_view::npos) return;
      const auto length = text::to_integer(body.substr(0, blank)).value_or(0);
      const auto bytes = static_cast<std::size_t>(std::max<long long>(length, 0));
      if (bytes <= blank + 1 || bytes > body.size()) refuse("has a damaged pax header");
      const auto line = body.substr(blank + 1, bytes - blank - 2);
      if (line.starts_with("path=")) long_name_ = std::string(line.substr(5));
      if (line.starts_with("size=")) {
        const auto size = text::to_integer(line.substr(5)).value_or(-1);
        if (size < 0) refuse("has a damaged pax header");
        long_size_ = static_cast<std::size_t>(size);
      }
      body.remove_prefix(bytes);
    }
  }

  Bytes all_;
  const std::string& path_;
  std::size_t at_ = 0;
  std::optional<std::string> long_name_;  // of the next entry, as is its size
  std::optional<std::size_t> long_size_;
};

}  // namespace

std::vector<TarEntry> read_tar(const MappedFile& file, const std::string& path) {
  return TarReader(file.bytes(), path).entries();
}

}  // namespace lockstep::data::detail
