#include "lockstep/data/detail/mapped_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"

namespace lockstep::data::detail {

MappedFile::MappedFile(const std::filesystem::path& path) {
  const files::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat about {};
  if (!file || ::fstat(file.get(), &about) != 0) {
    throw Error(Fault::io, "data: cannot read '", path.string(),
                "': ", std::strerror(errno));
  }
  if (about.st_size == 0) {
    throw Error(Fault::io, "data: '", path.string(), "' is empty; copy it again");
  }
  const auto size = static_cast<std::size_t>(about.st_size);
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) {  // NOLINT: the system's own cast
    throw Error(Fault::io, "data: cannot map '", path.string(),
                "': ", std::strerror(errno));
  }
  bytes_ = {static_cast<const std::byte*>(memory), size};
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})) {}

}  // namespace lockstep::data::detail
