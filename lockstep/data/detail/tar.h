#pragma once

#include <string>
#include <vector>

#include "lockstep/data/detail/mapped_file.h"

namespace lockstep::data::detail {

// A file in a tar archive.
struct TarEntry {
  std::string name;
  std::span<const std::byte> bytes;  // of the archive
};

// Returns the files of an archive in their order: of the forms that tar, Python's
// tarfile and webdataset write (ustar, GNU, pax). Folders and links are left out.
// Throws Fault::io, with `path`, for one that is damaged or compressed.
std::vector<TarEntry> read_tar(const MappedFile& file, const std::string& path);

}  // namespace lockstep::data::detail
