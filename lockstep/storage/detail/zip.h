#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "lockstep/storage/detail/input_file.h"

namespace lockstep::storage {

struct ZipRecord {
  std::int64_t begin = 0;  // of its bytes in the file
  std::int64_t size = 0;
};

// Returns the records of a zip file without compression, as torch.save() writes it.
// Throws Fault::io for anything else.
std::map<std::string, ZipRecord> read_zip(const InputFile& file);

}  // namespace lockstep::storage
