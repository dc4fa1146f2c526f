#include "lockstep/storage/detail/input_file.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep::storage {

InputFile::InputFile(const std::filesystem::path& path)
    : path_(path), file_(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
  struct stat info {};
  if (!file_ || ::fstat(file_.get(), &info) != 0) files::fail("read", path, errno);
  if (!S_ISREG(info.st_mode)) {
    throw Error(Fault::io, "cannot read '", path.string(), "': it is not a file");
  }
  size_ = info.st_size;
}

void InputFile::read(std::int64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const auto got = ::pread(file_.get(), out.data(), out.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) files::fail("read", path_, errno);
    if (got == 0) {
      throw Error(Fault::io, "cannot read '", path_.string(), "': it ends at byte ",
                  offset, ", ", out.size(), " before what should be there");
    }
    offset += got;
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

std::string InputFile::text(std::int64_t offset, std::int64_t bytes) const {
  std::string result(static_cast<std::size_t>(bytes), '\0');
  read(offset, std::as_writable_bytes(std::span(result)));
  return result;
}

}  // namespace lockstep::storage
