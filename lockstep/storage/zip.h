#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace lockstep::storage {

class InputFile;

// A file in a zip archive.
struct ZipRecord {
  std::int64_t begin = 0;   // of its bytes in the archive
  std::int64_t size = 0;    // that it takes there
  std::int64_t full = 0;    // bytes that it has: `size` unless it is deflated
  std::uint32_t crc32 = 0;  // of these
  bool is_deflated = false;
};

// Returns the records of an archive without compression, as torch.save() writes it.
// Throws Fault::io for anything else.
std::map<std::string, ZipRecord> read_zip(const InputFile& file);

// Returns those of an .npz file, as numpy.savez() and numpy.savez_compressed() write
// it.
std::map<std::string, ZipRecord> read_npz(const std::filesystem::path& file);

}  // namespace lockstep::storage
