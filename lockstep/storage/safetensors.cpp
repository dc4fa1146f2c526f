#include "lockstep/storage/safetensors.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/storage/detail/input_file.h"

namespace lockstep::storage {

const SafetensorsEntry* SafetensorsHeader::find(std::string_view name) const {
  for (const auto& entry : entries) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

SafetensorsHeader read_safetensors_header(const std::filesystem::path& path) {
  const InputFile file(path);
  std::string head = file.text(0, std::min<std::int64_t>(8, file.size()));
  std::uint64_t length = 0;
  for (std::size_t i = head.size(); i-- > 0;) {
    length = length << 8 | static_cast<unsigned char>(head[i]);
  }
  // A length that is too large is for the parser to refuse.
  const auto room = std::min<std::int64_t>(kHeaderLimit, file.size() - 8);
  if (room > 0 && length <= static_cast<std::uint64_t>(room)) {
    head += file.text(8, static_cast<std::int64_t>(length));
  }
  return parse_safetensors(head, file.size(), path.string());
}

bool comes_before(const SafetensorsEntry& a, const SafetensorsEntry& b) {
  const auto bits_a = bits_of(a.dtype).value_or(0);
  const auto bits_b = bits_of(b.dtype).value_or(0);
  return bits_a != bits_b ? bits_a > bits_b : a.name < b.name;
}

void place(std::vector<SafetensorsEntry>& entries) {
  std::int64_t at = 0;
  for (auto& entry : entries) {
    const auto count = num_elements(entry.shape);
    const auto bytes = count ? num_bytes(entry.dtype, *count) : std::nullopt;
    LOCKSTEP_CHECK(bytes, entry.name, " ", entry.dtype, " ", to_text(entry.shape));
    entry.begin = at;
    at += *bytes;
    entry.end = at;
  }
}

std::string header_text(const std::vector<SafetensorsEntry>& entries,
                        const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json about = nlohmann::ordered_json::object();
  // transformers refuses a file that does not say whose layout it has.
  about["format"] = "pt";
  for (const auto& [key, value] : metadata) about[key] = value;
  std::string json = "{\"__metadata__\":" + about.dump();
  std::vector<std::string_view> names;
  for (const auto& entry : entries) {
    names.emplace_back(entry.name);
    const nlohmann::ordered_json fields = {{"dtype", entry.dtype},
                                           {"shape", entry.shape},
                                           {"data_offsets", {entry.begin, entry.end}}};
    json += "," + nlohmann::json(entry.name).dump() + ":" + fields.dump();
  }
  std::sort(names.begin(), names.end());
  const auto twin = std::adjacent_find(names.begin(), names.end());
  LOCKSTEP_CHECK(twin == names.end(), "two tensors are named '", *twin, "'");
  json += "}";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  std::string length(8, '\0');
  auto rest = static_cast<std::uint64_t>(json.size());
  for (auto& byte : length) {
    byte = static_cast<char>(rest & 0xFF);
    rest >>= 8;
  }
  return length + json;
}

void read_in_pieces(const std::filesystem::path& path, const ByteRange& range,
                    const Give& give) {
  const auto [begin, bytes] = range;
  constexpr std::int64_t kPiece = 4 << 20;
  const InputFile file(path);
  std::vector<std::byte> memory(static_cast<std::size_t>(std::min(kPiece, bytes)));
  for (std::int64_t at = 0; at < bytes; at += kPiece) {
    const auto piece =
        std::span(memory).first(static_cast<std::size_t>(std::min(kPiece, bytes - at)));
    file.read(begin + at, piece);
    give(piece);
  }
}

void write_safetensors(
    const std::filesystem::path& path, const std::vector<SafetensorsEntry>& entries,
    const std::function<void(const SafetensorsEntry&, const Give&)>& fill) {
  const auto header = header_text(entries);
  files::write_atomically(path, [&](int fd) {
    files::write_all(fd, header, path);
    for (const auto& entry : entries) {
      auto left = entry.end - entry.begin;
      fill(entry, [&](std::span<const std::byte> bytes) {
        left -= static_cast<std::int64_t>(bytes.size());
        LOCKSTEP_CHECK(left >= 0, entry.name, " has more bytes than it should");
        files::write_all(
            fd, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
      });
      LOCKSTEP_CHECK(left == 0, entry.name, " lacks ", left, " bytes");
    }
  });
}

}  // namespace lockstep::storage
