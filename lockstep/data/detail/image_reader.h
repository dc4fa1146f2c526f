#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/detail/decode.h"
#include "lockstep/data/transforms/resize.h"

namespace lockstep::data::detail {

// Returns whether a file is named like a JPEG or a PNG.
bool is_image_name(std::string_view path);

// The mean and deviation of ImageNet's colors, which pretrained weights expect, for RGB
// of bytes.
std::vector<Affine> imagenet_colors();

// How an image becomes a sample.
struct ImageShape {
  std::int64_t channels = 3;  // or 1: the brightness
  std::int64_t height = 0, width = 0;
  // Brings images of other sizes to this one, the middle square of each where it is
  // one; else they are refused.
  bool resizes = false;
};

// Reads images: the tools of one thread (a Pool keeps them).
class ImageReader {
 public:
  // Returns the bytes of a file, until the next call. Throws Fault::io, naming it.
  Bytes load(const std::string& path);

  // These throw Fault::io without a name.
  ImageSize size_of(Bytes file);
  void read(Bytes file, const ImageShape& shape, std::uint8_t* out);

 private:
  Decoder decoder_;
  Resizer resizer_;
  std::vector<std::byte> file_;
  std::vector<std::uint8_t> planes_;
};

// Returns the size of `file`, the image that all others have to have the size of where
// `side` is 0; else `side` x `side`.
ImageShape image_shape(ImageReader& reader, Bytes file, std::int64_t side);

}  // namespace lockstep::data::detail
