#include "lockstep/storage/zip.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/storage/detail/input_file.h"

namespace lockstep::storage {
namespace {

constexpr std::string_view kEnd = "PK\x05\x06";
constexpr std::string_view kEnd64 = "PK\x06\x06";
constexpr std::string_view kLocator64 = "PK\x06\x07";
constexpr std::string_view kCentral = "PK\x01\x02";
constexpr std::string_view kLocal = "PK\x03\x04";
constexpr std::int64_t kEndBytes = 22;
constexpr std::int64_t kCommentLimit = 65535;
constexpr std::int64_t kDirectoryLimit = 256 << 20;
constexpr std::uint64_t kIsInZip64 =
    0xFFFFFFFF;  // the true value is in the zip64 record

constexpr std::uint64_t kStored = 0, kDeflated = 8;  // methods

// What an archive has to be.
struct ZipKind {
  std::string_view name;
  std::string_view remedy;
  bool may_be_deflated;
};

constexpr ZipKind kTorchFile{
    "file of torch.save()",
    "it is no zip file, as PyTorch writes since 1.6; torch.load() an older one and "
    "torch.save() it again",
    false};
constexpr ZipKind kNpz{
    "file of numpy.savez()",
    "it is truncated, or no zip file; copy it again, or numpy.savez() its arrays",
    true};

class ZipReader {
 public:
  ZipReader(const InputFile& file, const ZipKind& kind) : file_(file), kind_(kind) {}

  std::map<std::string, ZipRecord> records() {
    const auto [begin, size] = directory();
    const auto bytes = text(begin, size);
    std::map<std::string, ZipRecord> result;
    for (std::size_t at = 0; at < bytes.size();) take(bytes, at, result);
    check_apart(result);
    return result;
  }

 private:
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    throw Error(Fault::io, file_.path().string(), ": ", parts..., "; it is no ",
                kind_.name);
  }

  std::string text(std::int64_t begin, std::int64_t size) const {
    if (begin < 0 || size < 0 || begin > file_.size() || size > file_.size() - begin) {
      refuse("its directory leads to byte ", begin, " of ", file_.size());
    }
    return file_.text(begin, size);
  }

  // Records that share their bytes let a small file unpack to any size.
  void check_apart(const std::map<std::string, ZipRecord>& records) const {
    std::vector<std::pair<std::int64_t, std::int64_t>> extents;
    for (const auto& [name, record] : records) {
      if (record.size > 0) extents.emplace_back(record.begin, record.size);
    }
    std::sort(extents.begin(), extents.end());
    std::int64_t end = 0;
    for (const auto& [begin, size] : extents) {
      if (begin < end) refuse("the records in it overlap at byte ", begin);
      end = begin + size;
    }
  }

  // Reads a little-endian number; 0 beyond the end.
  static std::uint64_t number(std::string_view bytes, std::size_t at,
                              std::size_t width) {
    std::uint64_t value = 0;
    if (at > bytes.size() || width > bytes.size() - at) return 0;
    for (auto i = width; i-- > 0;) {
      value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
    }
    return value;
  }

  static std::int64_t clamped(std::uint64_t value) {
    return static_cast<std::int64_t>(std::min<std::uint64_t>(value, INT64_MAX));
  }

  std::pair<std::int64_t, std::int64_t> directory() const {
    const auto tail_bytes = std::min(file_.size(), kEndBytes + kCommentLimit);
    const auto tail = text(file_.size() - tail_bytes, tail_bytes);
    const auto at = tail.rfind(kEnd);
    if (at == std::string::npos || tail.size() - at < kEndBytes) {
      refuse(kind_.remedy);
    }
    auto size = number(tail, at + 12, 4);
    auto begin = number(tail, at + 16, 4);
    const auto end = file_.size() - tail_bytes + static_cast<std::int64_t>(at);
    if (size == kIsInZip64 || begin == kIsInZip64 ||
        number(tail, at + 10, 2) == 0xFFFF) {
      const auto locator = text(end - 20, 20);
      if (!locator.starts_with(kLocator64)) refuse("its zip64 directory is missing");
      const auto end64 = text(clamped(number(locator, 8, 8)), 56);
      if (!end64.starts_with(kEnd64)) refuse("its zip64 directory is missing");
      size = number(end64, 40, 8);
      begin = number(end64, 48, 8);
    }
    if (size > static_cast<std::uint64_t>(kDirectoryLimit)) {
      refuse("its directory would have ", size, " bytes");
    }
    return {clamped(begin), clamped(size)};
  }

  // The numbers of a record that may not fit into 32 bits.
  struct Zip64Numbers {
    std::uint64_t full, packed;  // sizes
    std::uint64_t place;
  };

  // Takes those that did not fit, which stand behind it in this order.
  static void take_64(std::string_view extra, Zip64Numbers& extent) {
    for (std::size_t at = 0; at + 4 <= extra.size();) {
      const auto kind = number(extra, at, 2);
      const auto size = number(extra, at + 2, 2);
      auto from = at + 4;
      for (auto* value : {&extent.full, &extent.packed, &extent.place}) {
        if (kind != 1 || *value != kIsInZip64) continue;
        *value = number(extra, from, 8);
        from += 8;
      }
      at += 4 + size;
    }
  }

  void take(std::string_view bytes, std::size_t& at,
            std::map<std::string, ZipRecord>& records) const {
    const auto entry = bytes.substr(at);
    if (entry.size() < 46 || !entry.starts_with(kCentral)) {
      refuse("its directory is torn");
    }
    const auto name_bytes = number(entry, 28, 2), extra_bytes = number(entry, 30, 2),
               comment_bytes = number(entry, 32, 2);
    if (46 + name_bytes + extra_bytes + comment_bytes > entry.size()) {
      refuse("its directory is torn");
    }
    const std::string name(entry.substr(46, name_bytes));
    Zip64Numbers extent{.full = number(entry, 24, 4),
                        .packed = number(entry, 20, 4),
                        .place = number(entry, 42, 4)};
    take_64(entry.substr(46 + name_bytes, extra_bytes), extent);
    const auto method = number(entry, 10, 2);
    const bool is_stored = method == kStored && extent.packed == extent.full;
    const bool is_deflated = method == kDeflated && kind_.may_be_deflated;
    if ((!is_stored && !is_deflated) || (number(entry, 8, 2) & 1) != 0) {
      refuse("'", name, "' in it is compressed or encrypted");
    }
    auto record = located(name, clamped(extent.place), clamped(extent.packed));
    record.full = clamped(extent.full);
    record.crc32 = static_cast<std::uint32_t>(number(entry, 16, 4));
    record.is_deflated = is_deflated;
    if (!records.emplace(name, record).second) {
      refuse("'", name, "' is in it twice");
    }
    at += 46 + name_bytes + extra_bytes + comment_bytes;
  }

  ZipRecord located(const std::string& name, std::int64_t place,
                    std::int64_t size) const {
    const auto head = text(place, 30);
    if (!head.starts_with(kLocal)) refuse("'", name, "' is not where it should be");
    const auto begin =
        place + 30 +
        static_cast<std::int64_t>(number(head, 26, 2) + number(head, 28, 2));
    if (begin > file_.size() || size > file_.size() - begin) {
      refuse("'", name, "' ends at byte ", begin, " + ", size, " of ", file_.size());
    }
    return {.begin = begin, .size = size};
  }

  const InputFile& file_;
  const ZipKind& kind_;
};

}  // namespace

std::map<std::string, ZipRecord> read_zip(const InputFile& file) {
  return ZipReader(file, kTorchFile).records();
}

std::map<std::string, ZipRecord> read_npz(const std::filesystem::path& file) {
  return ZipReader(InputFile(file), kNpz).records();
}

}  // namespace lockstep::storage
