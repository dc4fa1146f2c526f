#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "lockstep/base/files.h"

namespace lockstep::storage {

// A file that is read here and there. All errors are Fault::io with its path.
//
// Threads: any number.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path);

  std::int64_t size() const noexcept { return size_; }
  const std::filesystem::path& path() const noexcept { return path_; }

  // Fills all of `out`; a file that ends before is an error.
  void read(std::int64_t offset, std::span<std::byte> out) const;
  std::string text(std::int64_t offset, std::int64_t bytes) const;

 private:
  std::filesystem::path path_;
  files::Descriptor file_;
  std::int64_t size_ = 0;
};

}  // namespace lockstep::storage
