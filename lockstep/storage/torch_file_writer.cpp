// A zip file without compression, with a pickle that names its other records.
#include <array>

#include <unistd.h>
#include <zlib.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/storage/detail/pickle.h"
#include "lockstep/storage/torch_file.h"

namespace lockstep::storage {
namespace {

constexpr std::uint64_t kIn64 = 0xFFFFFFFF;  // the true value is in the zip64 field
constexpr std::uint64_t kMostIn16 = 0xFFFF;
constexpr std::int64_t kAlign = 64;  // of a tensor in the file, as PyTorch has it
constexpr std::int64_t kVersion64 = 45;
constexpr std::int64_t kFolderIsFine = 0x21;  // the first day that a zip file knows

std::string little_endian(std::uint64_t value, int width) {
  std::string bytes;
  for (int i = 0; i < width; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
  return bytes;
}

// Writes the operations of a state dict's pickle.
class PickleWriter {
 public:
  std::string state_dict(const std::vector<SafetensorsEntry>& entries,
                         const std::string& place) {
    text_ = "\x80\x02";  // protocol 2
    ordered_dict();
    text_ += '(';
    for (std::size_t i = 0; i < entries.size(); ++i) {
      text(entries[i].name);
      tensor(entries[i], std::to_string(i), place);
    }
    text_ += "u.";
    return std::move(text_);
  }

 private:
  void name(const std::string& module, const std::string& what) {
    text_ += "c" + module + "\n" + what + "\n";
  }
  void ordered_dict() {
    name("collections", "OrderedDict");
    text_ += ")R";
  }
  void text(const std::string& value) {
    text_ += "X" + little_endian(value.size(), 4) + value;
  }
  void number(std::int64_t value) {
    text_ += "\x8a\x08" + little_endian(static_cast<std::uint64_t>(value), 8);
  }
  void numbers(const std::vector<std::int64_t>& values) {
    text_ += '(';
    for (const auto value : values) number(value);
    text_ += 't';
  }

  void tensor(const SafetensorsEntry& entry, const std::string& key,
              const std::string& place) {
    const auto type = storage_class(entry.dtype);
    if (!type) {
      throw Error(Fault::config, place, ": '", entry.name, "' is ", entry.dtype,
                  ", which a .pt file has no plain name for; export safetensors");
    }
    name("torch._utils", "_rebuild_tensor_v2");
    text_ += "((";
    text("storage");
    name("torch", *type);
    text(key);
    text("cpu");
    number(num_elements(entry.shape).value_or(0));
    text_ += "tQ";
    number(0);  // offset
    numbers(entry.shape);
    numbers(strides_of(entry.shape, {}));
    text_ += "\x89";  // needs no gradient
    ordered_dict();   // no hooks
    text_ += "tR";
  }

  std::string text_;
};

class ZipWriter {
 public:
  ZipWriter(int fd, const Path& path) : fd_(fd), path_(path) {}

  void begin(const std::string& name, std::int64_t size) {
    record_ = {name, at_, size, 0};
    const auto large = static_cast<std::uint64_t>(size) >= kIn64;
    std::string extra;
    if (large) {
      extra = little_endian(1, 2) + little_endian(16, 2) + little_endian(size, 8) +
              little_endian(size, 8);
    }
    // The bytes begin at a multiple of kAlign; PyTorch calls the filler "FB".
    const auto names = 30 + static_cast<std::int64_t>(name.size() + extra.size()) + 4;
    const auto filler = (kAlign - (at_ + names) % kAlign) % kAlign;
    extra += "FB" + little_endian(filler, 2) +
             std::string(static_cast<std::size_t>(filler), 'Z');
    const auto shown = large ? kIn64 : static_cast<std::uint64_t>(size);
    write("PK\x03\x04" + common(0, shown) + little_endian(name.size(), 2) +
          little_endian(extra.size(), 2) + name + extra);
  }
  void append(std::span<const std::byte> bytes) {
    record_.crc = crc32_z(record_.crc, reinterpret_cast<const Bytef*>(bytes.data()),
                          bytes.size());
    write({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  // The checksum comes before the bytes in the file and is known after them.
  void end() {
    constexpr std::int64_t kCrcAt = 14;
    const auto crc = little_endian(record_.crc, 4);
    if (::pwrite(fd_, crc.data(), crc.size(), record_.begin + kCrcAt) !=
        static_cast<ssize_t>(crc.size())) {
      files::fail("write", path_, errno);
    }
    records_.push_back(record_);
  }
  void add(const std::string& name, const std::string& content) {
    begin(name, static_cast<std::int64_t>(content.size()));
    append(std::as_bytes(std::span(content)));
    end();
  }

  void finish() {
    const auto begin = at_;
    for (const auto& record : records_) write(central(record));
    const auto size = at_ - begin;
    const auto count = records_.size();
    if (count >= kMostIn16 || static_cast<std::uint64_t>(at_) >= kIn64) {
      const auto end64 = at_;
      write("PK\x06\x06" + little_endian(44, 8) + little_endian(kVersion64, 2) +
            little_endian(kVersion64, 2) + little_endian(0, 8) +
            little_endian(count, 8) + little_endian(count, 8) + little_endian(size, 8) +
            little_endian(begin, 8));
      write("PK\x06\x07" + little_endian(0, 4) + little_endian(end64, 8) +
            little_endian(1, 4));
    }
    const auto few = std::min<std::uint64_t>(count, kMostIn16);
    write(
        "PK\x05\x06" + little_endian(0, 4) + little_endian(few, 2) +
        little_endian(few, 2) + little_endian(std::min<std::uint64_t>(size, kIn64), 4) +
        little_endian(std::min<std::uint64_t>(begin, kIn64), 4) + little_endian(0, 2));
  }

 private:
  struct Record {
    std::string name;
    std::int64_t begin = 0;
    std::int64_t size = 0;
    uLong crc = 0;
  };

  static std::string common(uLong crc, std::uint64_t size) {
    return little_endian(kVersion64, 2) + little_endian(0, 2) + little_endian(0, 2) +
           little_endian(0, 2) + little_endian(kFolderIsFine, 2) +
           little_endian(crc, 4) + little_endian(size, 4) + little_endian(size, 4);
  }

  static std::string central(const Record& record) {
    const auto size = static_cast<std::uint64_t>(record.size);
    const auto begin = static_cast<std::uint64_t>(record.begin);
    std::string large;
    if (size >= kIn64) large += little_endian(size, 8) + little_endian(size, 8);
    if (begin >= kIn64) large += little_endian(begin, 8);
    if (!large.empty()) {
      large = little_endian(1, 2) + little_endian(large.size(), 2) + large;
    }
    return "PK\x01\x02" + little_endian(kVersion64, 2) +
           common(record.crc, std::min(size, kIn64)) +
           little_endian(record.name.size(), 2) + little_endian(large.size(), 2) +
           little_endian(0, 2) + little_endian(0, 2) + little_endian(0, 2) +
           little_endian(0, 4) + little_endian(std::min(begin, kIn64), 4) +
           record.name + large;
  }

  void write(std::string_view bytes) {
    files::write_all(fd_, bytes, path_);
    at_ += static_cast<std::int64_t>(bytes.size());
  }

  int fd_;
  const Path& path_;
  std::int64_t at_ = 0;
  Record record_;
  std::vector<Record> records_;
};

}  // namespace

void write_torch_file(
    const Path& path, const std::vector<SafetensorsEntry>& entries,
    const std::function<void(const SafetensorsEntry&, const Give&)>& fill) {
  const auto pickle = PickleWriter().state_dict(entries, path.string());
  files::write_atomically(path, [&](int fd) {
    if (::lseek(fd, 0, SEEK_CUR) < 0) {
      throw Error(Fault::config, "cannot write '", path.string(),
                  "': a .pt file is not written from its beginning to its end, as a "
                  "pipe or a terminal needs it; name a file, or another format");
    }
    ZipWriter zip(fd, path);
    zip.add("archive/data.pkl", pickle);
    zip.add("archive/byteorder", "little");
    for (std::size_t i = 0; i < entries.size(); ++i) {
      auto left = entries[i].end - entries[i].begin;
      zip.begin("archive/data/" + std::to_string(i), left);
      fill(entries[i], [&](std::span<const std::byte> bytes) {
        left -= static_cast<std::int64_t>(bytes.size());
        zip.append(bytes);
      });
      LOCKSTEP_CHECK(left == 0, entries[i].name, " differs by ", left, " bytes");
      zip.end();
    }
    zip.add("archive/version", "3\n");
    zip.finish();
  });
}

}  // namespace lockstep::storage
