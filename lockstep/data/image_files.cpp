#include "lockstep/data/image_files.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/data/detail/image_reader.h"
#include "lockstep/data/detail/pool.h"

namespace lockstep::data {
namespace {

constexpr std::int64_t kMostFileBytes = 1 << 30;

class ImageFiles : public Dataset {
 public:
  ImageFiles(std::vector<std::string> files, SampleSpec spec)
      : files_(std::move(files)),
        spec_(std::move(spec)),
        shape_{spec_.shape[0], spec_.shape[1], spec_.shape[2], /*resizes=*/true} {}

  std::int64_t size() const noexcept override {
    return static_cast<std::int64_t>(files_.size());
  }
  const SampleSpec& spec() const noexcept override { return spec_; }
  std::int64_t class_of(std::int64_t) const override { return 0; }

  std::int64_t read(std::int64_t index, std::span<std::byte> input) const override {
    const auto& path = files_[static_cast<std::size_t>(index)];
    const auto reader = readers_.take();
    const auto text = files::read(path, kMostFileBytes);  // a pipe, perhaps
    try {
      reader->read({reinterpret_cast<const std::byte*>(text.data()), text.size()},
                   shape_, reinterpret_cast<std::uint8_t*>(input.data()));
    } catch (const Error& error) {
      throw Error(Fault::io, "'", path, "': ", error.what());
    }
    return 0;
  }

 private:
  std::vector<std::string> files_;
  SampleSpec spec_;
  detail::ImageShape shape_;
  mutable detail::Pool<detail::ImageReader> readers_;
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
