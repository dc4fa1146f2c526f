#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace lockstep::data::detail {

// A file as memory, read only. Pages come from the disk when they are touched.
class MappedFile {
 public:
  // Throws Fault::io, naming the file, if it can not be mapped or is empty.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace lockstep::data::detail
