#include "lockstep/data/image_files.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/data/detail/decode.h"
#include "lockstep/data/detail/pool.h"

namespace lockstep::data {
namespace {

constexpr std::int64_t kMostFileBytes = 1 << 30;

class ImageFiles : public Dataset {
 public:
  ImageFiles(std::vector<std::string> files, SampleSpec spec)
      : files_(std::move(files)), spec_(std::move(spec)) {}

  std::int64_t size() const noexcept override {
    return static_cast<std::int64_t>(files_.size());
  }
  const SampleSpec& spec() const noexcept override { return spec_; }
  std::int64_t class_of(std::int64_t) const override { return 0; }

  std::int64_t read(std::int64_t index, std::span<std::byte> input) const override {
    const auto& path = files_[static_cast<std::size_t>(index)];
    const auto tools = tools_.take();
    const auto text = files::read(path, kMostFileBytes);
    try {
      write(*tools, {reinterpret_cast<const std::byte*>(text.data()), text.size()},
            reinterpret_cast<std::uint8_t*>(input.data()));
    } catch (const Error& error) {
      throw Error(Fault::io, "'", path, "': ", error.what());
    }
    return 0;
  }

 private:
  // The tools of a thread that reads images.
  struct ImageTools {
    detail::Decoder decoder;
    Resizer resizer;
    std::vector<std::uint8_t> planes;
  };

  void write(ImageTools& tools, detail::Bytes file, std::uint8_t* out) const {
    const auto channels = spec_.shape[0], height = spec_.shape[1],
               width = spec_.shape[2];
    auto pixels = tools.decoder.decode(file, std::min(height, width));
    tools.planes.resize(static_cast<std::size_t>(3 * height * width));
    auto* const planes = channels == 3 ? out : tools.planes.data();
    if (pixels.height == height && pixels.width == width) {
      detail::split_planes(pixels, planes);
    } else {
      if (height == width) pixels = middle_square(pixels);
      tools.resizer.resize(pixels, Image<std::uint8_t>{planes, 3, height, width});
    }
    if (channels == 3) return;
    const auto count = height * width;
    for (std::int64_t i = 0; i < count; ++i) {
      constexpr int kRed = 299, kGreen = 587,
                    kBlue = 114;  // ITU-R BT.601, in thousands
      const int sum =
          kRed * planes[i] + kGreen * planes[count + i] + kBlue * planes[2 * count + i];
      out[i] = static_cast<std::uint8_t>((sum + 500) / 1000);
    }
  }

  static Pixels<std::uint8_t> middle_square(Pixels<std::uint8_t> pixels) {
    const auto side = std::min(pixels.height, pixels.width);
    pixels.data += (pixels.height - side) / 2 * pixels.row_stride +
                   (pixels.width - side) / 2 * pixels.step;
    pixels.height = pixels.width = side;
    return pixels;
  }

  std::vector<std::string> files_;
  SampleSpec spec_;
  mutable detail::Pool<ImageTools> tools_;
};

}  // namespace

std::unique_ptr<Dataset> open_image_files(std::vector<std::string> files,
                                          const SampleSpec& like) {
  const bool is_image = like.shape.size() == 3 && like.dtype == torch::kUInt8 &&
                        (like.shape[0] == 1 || like.shape[0] == 3) &&
                        like.fields.empty();
  if (!is_image) {
    throw Error(
        Fault::config, "data: samples of shape ", c10::IntArrayRef(like.shape),
        " and dtype ", c10::toString(like.dtype),
        " are not made from image files; those are of 1 or 3 channels of bytes");
  }
  auto spec = like;
  spec.target_shape = {};
  spec.target_dtype = torch::kInt64;
  spec.num_classes = std::max<std::int64_t>(1, like.num_classes);
  return std::make_unique<ImageFiles>(std::move(files), std::move(spec));
}

}  // namespace lockstep::data
