#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/storage/layout.h"

namespace lockstep::storage {

// One tensor of a safetensors file; the bytes are counted from the end of the header.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;
  Shape shape;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // by `begin`
  std::map<std::string, std::string> metadata;
  std::int64_t data_begin = 0;  // in the file

  const SafetensorsEntry* find(std::string_view name) const;
};

// The limit that the format sets.
inline constexpr std::int64_t kHeaderLimit = 100'000'000;

// `head` is the file, or its begin with the whole header. Strict; it refuses anything
// outside the format, holes and overlaps between tensors, a size that the dtype and
// shape do not give, names that come twice, bytes behind the last tensor. Throws
// Fault::io, beginning with `place`.
SafetensorsHeader parse_safetensors(std::string_view head, std::int64_t file_bytes,
                                    const std::string& place);

// Reads no more than the header.
SafetensorsHeader read_safetensors_header(const std::filesystem::path& path);

// Sorts wide dtypes first, then by name: every tensor is then aligned to its element
// without holes.
bool comes_before(const SafetensorsEntry& a, const SafetensorsEntry& b);

// Gives the entries their places, one after the other.
void place(std::vector<SafetensorsEntry>& entries);

// Returns the bytes before the tensors, for entries that have their places: the length,
// and the JSON padded with spaces to a multiple of eight.
std::string header_text(const std::vector<SafetensorsEntry>& entries,
                        const std::map<std::string, std::string>& metadata = {});

// Receives bytes of a file, in pieces of some megabytes.
using Give = std::function<void(std::span<const std::byte>)>;
struct ByteRange {
  std::int64_t begin = 0;
  std::int64_t size = 0;
};
void read_in_pieces(const std::filesystem::path& path, const ByteRange& range,
                    const Give& give);

// Writes a file, whole or not at all, with the memory of one piece: `fill` is called
// for every entry in turn and gives its bytes, in as many pieces as it likes.
void write_safetensors(
    const std::filesystem::path& path, const std::vector<SafetensorsEntry>& entries,
    const std::function<void(const SafetensorsEntry&, const Give&)>& fill);

}  // namespace lockstep::storage
