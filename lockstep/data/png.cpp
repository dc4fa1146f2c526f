// The only user of libpng.
#include <cstring>

#include <png.h>

#include "lockstep/base/error.h"
#include "lockstep/data/detail/decode.h"
#include "lockstep/data/detail/library.h"

namespace lockstep::data::detail {
namespace {

struct LibPng {
  Library library{"libpng16.so.16",
                  "PNG files need libpng: install its package, libpng16-16 "
                  "(libpng16-16t64 on Ubuntu)"};
  decltype(&::png_image_begin_read_from_memory) begin = nullptr;
  decltype(&::png_image_finish_read) finish = nullptr;
  decltype(&::png_image_free) free = nullptr;

  LibPng() {
    library.find(begin, "png_image_begin_read_from_memory");
    library.find(finish, "png_image_finish_read");
    library.find(free, "png_image_free");
  }
};

// Loads once a process; the next caller repeats a failed try.
const LibPng& libpng() {
  static const LibPng kLibPng;
  return kLibPng;
}

// libpng's simple interface; the destructor frees its memory.
class PngReader {
 public:
  explicit PngReader(Bytes file) {
    std::memset(&image_, 0, sizeof image_);
    image_.version = PNG_IMAGE_VERSION;
    if (libpng().begin(&image_, file.data(), file.size()) == 0) fail();
    image_.format = PNG_FORMAT_RGB;
  }
  ~PngReader() { libpng().free(&image_); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  ImageSize size() const { return {image_.height, image_.width}; }

  void read(std::uint8_t* to) {
    const png_color black{0, 0, 0};
    const bool done = libpng().finish(&image_, &black, to, 0, nullptr) != 0;
    // A warning means that something in the file was not as it should be.
    if (!done || PNG_IMAGE_FAILED(image_)) fail();
  }

 private:
  [[noreturn]] void fail() const {
    throw Error(Fault::io, "it is a damaged PNG: ", image_.message);
  }

  png_image image_;
};

}  // namespace

bool is_png(Bytes file) noexcept {
  return file.size() > 4 && file[0] == std::byte{0x89} && file[1] == std::byte{'P'} &&
         file[2] == std::byte{'N'} && file[3] == std::byte{'G'};
}

ImageSize png_size(Bytes file) {
  return PngReader(file).size();
}

ImageSize decode_png(Bytes file, std::vector<std::uint8_t>& memory) {
  PngReader reader(file);
  const auto size = reader.size();
  const auto bytes = static_cast<std::size_t>(size.height * size.width * 3);
  if (memory.size() < bytes) memory.resize(bytes);
  reader.read(memory.data());
  return size;
}

}  // namespace lockstep::data::detail
