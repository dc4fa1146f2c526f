#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/data/transforms/resize.h"

namespace lockstep::data::detail {

using Bytes = std::span<const std::byte>;

// libjpeg-turbo's decoder, kept for the next image.
class JpegDecoder {
 public:
  JpegDecoder() = default;
  ~JpegDecoder();
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  static bool is_jpeg(Bytes file) noexcept;
  ImageSize size_of(Bytes file);

  // Decodes to RGB rows in `memory`. The shorter side may come out smaller than it is
  // in the file, but not smaller than `at_least`: a JPEG can be decoded at a half, a
  // quarter or an eighth of its size for less than the full price. 0: full size.
  ImageSize decode(Bytes file, std::int64_t at_least,
                   std::vector<std::uint8_t>& memory);

 private:
  void* handle();

  void* handle_ = nullptr;
};

// libpng's decoder; transparent pixels stand on black.
bool is_png(Bytes file) noexcept;
ImageSize png_size(Bytes file);
ImageSize decode_png(Bytes file, std::vector<std::uint8_t>& memory);

// Decodes either format, known by its first bytes. Errors are Fault::io without the
// file's name.
class Decoder {
 public:
  ImageSize size_of(Bytes file);
  Pixels<std::uint8_t> decode(Bytes file, std::int64_t at_least);

 private:
  JpegDecoder jpeg_;
  std::vector<std::uint8_t> memory_;
};

// Splits RGB pixels into planes.
void split_planes(const Pixels<std::uint8_t>& in, std::uint8_t* out);

}  // namespace lockstep::data::detail
