// The only user of libjpeg-turbo, by its TurboJPEG interface.
#include <algorithm>
#include <string_view>

#include <turbojpeg.h>

#include "lockstep/base/error.h"
#include "lockstep/data/detail/decode.h"
#include "lockstep/data/detail/library.h"

namespace lockstep::data::detail {
namespace {

struct TurboJpeg {
  Library library{"libturbojpeg.so.0",
                  "JPEG files need libjpeg-turbo: install its package, libturbojpeg0 "
                  "(libturbojpeg on Ubuntu)"};
  decltype(&::tjInitDecompress) init = nullptr;
  decltype(&::tjDecompressHeader3) header = nullptr;
  decltype(&::tjDecompress2) decompress = nullptr;
  decltype(&::tjGetErrorStr2) error_text = nullptr;
  decltype(&::tjGetErrorCode) error_code = nullptr;
  decltype(&::tjDestroy) destroy = nullptr;

  TurboJpeg() {
    library.find(init, "tjInitDecompress");
    library.find(header, "tjDecompressHeader3");
    library.find(decompress, "tjDecompress2");
    library.find(error_text, "tjGetErrorStr2");
    library.find(error_code, "tjGetErrorCode");
    library.find(destroy, "tjDestroy");
  }
};

// Loads once a process; the next caller repeats a failed try.
const TurboJpeg& turbojpeg() {
  static const TurboJpeg kTurboJpeg;
  return kTurboJpeg;
}

const unsigned char* data_of(Bytes file) {
  return reinterpret_cast<const unsigned char*>(file.data());
}

struct Header {
  int width = 0, height = 0, subsampling = 0, colorspace = 0;
};

Header header_of(void* handle, Bytes file) {
  const auto& jpeg = turbojpeg();
  Header header;
  if (jpeg.header(handle, data_of(file), file.size(), &header.width, &header.height,
                  &header.subsampling, &header.colorspace) != 0) {
    throw Error(Fault::io, "it is a damaged JPEG: ", jpeg.error_text(handle));
  }
  return header;
}

// Scales by halves, as long as the shorter side stays long enough; the rest is resized.
tjscalingfactor choose_scale(int shorter, std::int64_t at_least) {
  tjscalingfactor scale{1, 1};
  if (at_least == 0) return scale;
  for (int denominator = 2; denominator <= 8; denominator *= 2) {
    const tjscalingfactor smaller{1, denominator};
    if (TJSCALED(shorter, smaller) >= at_least) scale = smaller;
  }
  return scale;
}

// Cameras leave bytes between markers, which harm nothing; any other warning means that
// pixels are missing.
bool is_harmless(void* handle) {
  const auto& jpeg = turbojpeg();
  const std::string_view text = jpeg.error_text(handle);
  return jpeg.error_code(handle) == TJERR_WARNING &&
         text.find("extraneous") != std::string_view::npos;
}

}  // namespace

JpegDecoder::~JpegDecoder() {
  if (handle_ != nullptr) turbojpeg().destroy(handle_);
}

// The handle is made when it is needed: a folder of PNGs needs none.
void* JpegDecoder::handle() {
  if (handle_ == nullptr) handle_ = turbojpeg().init();
  LOCKSTEP_CHECK(handle_ != nullptr, turbojpeg().error_text(nullptr));
  return handle_;
}

bool JpegDecoder::is_jpeg(Bytes file) noexcept {
  return file.size() > 2 && file[0] == std::byte{0xFF} && file[1] == std::byte{0xD8};
}

ImageSize JpegDecoder::size_of(Bytes file) {
  const auto header = header_of(handle(), file);
  return {header.height, header.width};
}

ImageSize JpegDecoder::decode(Bytes file, std::int64_t at_least,
                              std::vector<std::uint8_t>& memory) {
  const auto& jpeg = turbojpeg();
  const auto header = header_of(handle(), file);
  const auto scale = choose_scale(std::min(header.width, header.height), at_least);
  const int width = TJSCALED(header.width, scale);
  const int height = TJSCALED(header.height, scale);
  const auto bytes =
      static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3;
  if (memory.size() < bytes) memory.resize(bytes);
  const int status = jpeg.decompress(handle_, data_of(file), file.size(), memory.data(),
                                     width, /*pitch=*/0, height, TJPF_RGB, /*flags=*/0);
  if (status != 0 && !is_harmless(handle_)) {
    throw Error(Fault::io, "it is a damaged JPEG: ", jpeg.error_text(handle_));
  }
  return {height, width};
}

}  // namespace lockstep::data::detail
