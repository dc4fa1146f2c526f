#include "lockstep/data/detail/image_reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/text.h"

namespace lockstep::data::detail {
namespace {

[[noreturn]] void fail(const std::string& path, int error) {
  throw Error(Fault::io, "'", path, "' cannot be read: ", std::strerror(error));
}

Pixels<std::uint8_t> middle_square(Pixels<std::uint8_t> pixels) {
  const auto side = std::min(pixels.height, pixels.width);
  pixels.data += (pixels.height - side) / 2 * pixels.row_stride +
                 (pixels.width - side) / 2 * pixels.step;
  pixels.height = pixels.width = side;
  return pixels;
}

// Writes the brightness of RGB planes of `count` pixels.
void write_brightness(const std::vector<std::uint8_t>& planes, std::int64_t count,
                      std::uint8_t* out) {
  constexpr int kRed = 299, kGreen = 587, kBlue = 114;  // ITU-R BT.601, in thousands
  const auto* red = planes.data();
  const auto *green = red + count, *blue = green + count;
  for (std::int64_t i = 0; i < count; ++i) {
    const int sum = kRed * red[i] + kGreen * green[i] + kBlue * blue[i];
    out[i] = static_cast<std::uint8_t>((sum + 500) / 1000);
  }
}

}  // namespace

bool is_image_name(std::string_view path) {
  const auto name = text::lower(path);
  return name.ends_with(".jpg") || name.ends_with(".jpeg") || name.ends_with(".png");
}

std::vector<Affine> imagenet_colors() {
  std::vector<Affine> channels;
  for (const auto& [mean, deviation] :
       {std::pair(0.485F, 0.229F), {0.456F, 0.224F}, {0.406F, 0.225F}}) {
    channels.push_back({1 / (255 * deviation), -mean / deviation});
  }
  return channels;
}

Bytes ImageReader::load(const std::string& path) {
  const files::Descriptor source(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat about {};
  if (!source || ::fstat(source.get(), &about) != 0) fail(path, errno);
  if (!S_ISREG(about.st_mode)) fail(path, S_ISDIR(about.st_mode) ? EISDIR : EINVAL);
  const auto size = static_cast<std::size_t>(about.st_size);
  if (file_.size() < size) file_.resize(size);
  std::size_t have = 0;
  while (have < size) {
    const auto got = ::read(source.get(), file_.data() + have, size - have);
    if (got < 0) fail(path, errno);
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  return {file_.data(), have};
}

ImageSize ImageReader::size_of(Bytes file) {
  return decoder_.size_of(file);
}

void ImageReader::read(Bytes file, const ImageShape& shape, std::uint8_t* out) {
  const auto& [channels, height, width, resizes] = shape;
  auto pixels = decoder_.decode(file, resizes ? std::min(height, width) : 0);
  const bool fits = pixels.height == height && pixels.width == width;
  if (!fits && !resizes) {
    throw Error(Fault::io, "it has ", pixels.height, " x ", pixels.width,
                " pixels, the first image has ", height, " x ", width,
                "; set data.resize to bring all to one size");
  }
  if (channels == 1) planes_.resize(static_cast<std::size_t>(3 * height * width));
  auto* const planes = channels == 1 ? planes_.data() : out;
  if (fits) {
    split_planes(pixels, planes);
  } else {
    if (height == width) pixels = middle_square(pixels);
    resizer_.resize(pixels, Image<std::uint8_t>{planes, 3, height, width});
  }
  if (channels == 1) write_brightness(planes_, height * width, out);
}

ImageShape image_shape(ImageReader& reader, Bytes file, std::int64_t side) {
  if (side > 0) return {.height = side, .width = side, .resizes = true};
  const auto size = reader.size_of(file);
  return {.height = size.height, .width = size.width};
}

}  // namespace lockstep::data::detail
