#include "lockstep/data/detail/decode.h"

#include "lockstep/base/error.h"
#include "lockstep/data/detail/vectors.h"

namespace lockstep::data::detail {
namespace {

[[noreturn]] void refuse() {
  throw Error(Fault::io, "it is neither a JPEG nor a PNG");
}

// Taking every third byte wants a byte shuffle.
LOCKSTEP_VECTORS
void split_row(const std::uint8_t* in, std::int64_t width, std::uint8_t* red,
               std::uint8_t* green, std::uint8_t* blue) {
  for (std::int64_t x = 0; x < width; ++x) {
    red[x] = in[3 * x];
    green[x] = in[3 * x + 1];
    blue[x] = in[3 * x + 2];
  }
}

}  // namespace

ImageSize Decoder::size_of(Bytes file) {
  if (JpegDecoder::is_jpeg(file)) return jpeg_.size_of(file);
  if (is_png(file)) return png_size(file);
  refuse();
}

Pixels<std::uint8_t> Decoder::decode(Bytes file, std::int64_t at_least) {
  ImageSize size;
  if (JpegDecoder::is_jpeg(file)) {
    size = jpeg_.decode(file, at_least, memory_);
  } else if (is_png(file)) {
    size = decode_png(file, memory_);
  } else {
    refuse();
  }
  return {memory_.data(), size.height, size.width, 3, size.width * 3};
}

void split_planes(const Pixels<std::uint8_t>& in, std::uint8_t* out) {
  const auto plane = in.height * in.width;
  for (std::int64_t y = 0; y < in.height; ++y) {
    auto* row = out + y * in.width;
    split_row(in.data + y * in.row_stride, in.width, row, row + plane, row + 2 * plane);
  }
}

}  // namespace lockstep::data::detail
