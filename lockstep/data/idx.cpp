#include "lockstep/data/idx.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <zlib.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::data {
namespace {

using Path = std::filesystem::path;

constexpr std::int64_t kLargestSide = 1 << 15;
constexpr std::string_view kAgain = "; install or copy the data set again";

// A gzip'ed or plain file read from front to back.
class Input {
 public:
  explicit Input(Path path)
      : path_(std::move(path)), file_(::gzopen(path_.c_str(), "rb")) {
    if (file_ == nullptr) {
      throw Error(Fault::io, "data: cannot read '", path_.string(),
                  "': ", std::strerror(errno));
    }
    ::gzbuffer(file_, 1 << 18);
  }
  ~Input() { ::gzclose(file_); }
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  const Path& path() const { return path_; }

  // zlib reads a file without gzip's magic as it is, which would hide a damaged one.
  void check_compression() {
    std::array<unsigned char, 1> first{};
    read(first.data(), first.size(), "its first byte");
    if (path_.extension() == ".gz" && ::gzdirect(file_) != 0) {
      throw Error(Fault::io, "data: '", path_.string(),
                  "' is not gzip, as its name says", kAgain);
    }
    ::gzrewind(file_);
  }

  void read(void* into, std::size_t num_bytes, std::string_view what) {
    auto* at = static_cast<char*>(into);
    std::size_t left = num_bytes;
    while (left > 0) {
      const auto piece = static_cast<unsigned>(std::min<std::size_t>(left, 1 << 24));
      const int got = ::gzread(file_, at, piece);
      if (got <= 0) fail_short(what, num_bytes, num_bytes - left);
      at += got;
      left -= static_cast<std::size_t>(got);
    }
  }

 private:
  [[noreturn]] void fail_short(std::string_view what, std::size_t wanted,
                               std::size_t got) {
    int code = Z_OK;
    const char* reason = ::gzerror(file_, &code);
    if (code != Z_OK && code != Z_BUF_ERROR && code != Z_STREAM_END) {
      const char* text = code == Z_ERRNO ? std::strerror(errno) : reason;
      throw Error(Fault::io, "data: '", path_.string(), "' is damaged: ", text, kAgain);
    }
    throw Error(Fault::io, "data: '", path_.string(), "' is truncated: ", what,
                " needs ", wanted, " bytes, ", got, " are there", kAgain);
  }

  Path path_;
  gzFile file_;
};

// Reads and checks an IDX header of unsigned bytes with `num_dimensions` dimensions.
std::vector<std::int64_t> read_header(Input& input, int num_dimensions,
                                      std::string_view what) {
  input.check_compression();
  std::array<unsigned char, 4> magic{};
  input.read(magic.data(), magic.size(), "the header");
  const std::array<unsigned char, 4> expected{
      0, 0, 8, static_cast<unsigned char>(num_dimensions)};
  if (magic != expected) {
    throw Error(Fault::io, "data: '", input.path().string(), "' does not hold ", what,
                ": its magic is ", int{magic[0]}, " ", int{magic[1]}, " ",
                int{magic[2]}, " ", int{magic[3]}, ", an IDX file of ", what,
                " starts with 0 0 8 ", num_dimensions,
                "; check data.dir and the file's name");
  }
  std::vector<std::int64_t> sizes;
  for (int i = 0; i < num_dimensions; ++i) {
    std::array<unsigned char, 4> b{};
    input.read(b.data(), b.size(), "the header");
    sizes.push_back((std::int64_t{b[0]} << 24) | (b[1] << 16) | (b[2] << 8) | b[3]);
  }
  return sizes;
}

struct Images {
  std::int64_t count, height, width;
  std::vector<std::byte> pixels;
};

std::int64_t limited(std::int64_t count, std::int64_t limit) {
  return limit > 0 ? std::min(count, limit) : count;
}

Images read_images(const IdxFiles& files) {
  Input input(files.images);
  const auto sizes = read_header(input, 3, "images");
  Images images{sizes[0], sizes[1], sizes[2], {}};
  // The sides are checked first: the product of two 32-bit numbers can overflow.
  const bool sane = images.count > 0 && images.height > 0 && images.width > 0 &&
                    images.height <= kLargestSide && images.width <= kLargestSide;
  if (!sane) {
    throw Error(Fault::io, "data: '", files.images.string(), "' says that it holds ",
                images.count, " images of ", images.height, " x ", images.width,
                " pixels, which cannot be", kAgain);
  }
  const auto num_bytes =
      limited(images.count, files.limit) * images.height * images.width;
  // A damaged header must not make us reserve terabytes: memory grows with the bytes
  // that arrive.
  constexpr std::int64_t kStep = 64 << 20;
  for (std::int64_t have = 0; have < num_bytes;) {
    const auto next = std::min(num_bytes - have, kStep);
    images.pixels.resize(static_cast<std::size_t>(have + next));
    input.read(images.pixels.data() + have, static_cast<std::size_t>(next),
               "the images");
    have += next;
  }
  return images;
}

std::vector<std::uint8_t> read_labels(const IdxFiles& files, std::int64_t num_images) {
  Input input(files.labels);
  const auto count = read_header(input, 1, "labels")[0];
  if (count != num_images) {
    throw Error(Fault::io, "data: '", files.images.string(), "' holds ", num_images,
                " images, but '", files.labels.string(), "' holds ", count,
                " labels; they are not of one data set", kAgain);
  }
  std::vector<std::uint8_t> labels(
      static_cast<std::size_t>(limited(count, files.limit)));
  input.read(labels.data(), labels.size(), "the labels");
  return labels;
}

class IdxDataset : public Dataset {
 public:
  explicit IdxDataset(const IdxFiles& files) {
    auto images = read_images(files);
    labels_ = read_labels(files, images.count);
    pixels_ = std::move(images.pixels);
    spec_.shape = {1, images.height, images.width};
    spec_.scale = 1.0F / (255.0F * files.deviation);
    spec_.shift = -files.mean / files.deviation;
    const auto largest = *std::max_element(labels_.begin(), labels_.end());
    spec_.num_classes = files.num_classes > 0 ? files.num_classes : largest + 1;
    spec_.class_names = files.class_names;
    if (largest >= spec_.num_classes) {
      throw Error(Fault::io, "data: '", files.labels.string(), "' has the label ",
                  int{largest}, ", the data set has the classes 0 to ",
                  spec_.num_classes - 1, kAgain);
    }
  }

  std::int64_t size() const noexcept override {
    return static_cast<std::int64_t>(labels_.size());
  }

  const SampleSpec& spec() const noexcept override { return spec_; }

  std::int64_t class_of(std::int64_t index) const override {
    return labels_[static_cast<std::size_t>(index)];
  }

  std::int64_t read(std::int64_t index, std::span<std::byte> input) const override {
    const auto bytes = static_cast<std::size_t>(spec_.num_bytes());
    const auto at = static_cast<std::size_t>(index);
    std::memcpy(input.data(), pixels_.data() + at * bytes, bytes);
    return labels_[at];
  }

 private:
  SampleSpec spec_;
  std::vector<std::byte> pixels_;
  std::vector<std::uint8_t> labels_;
};

}  // namespace

std::unique_ptr<Dataset> open_idx(const IdxFiles& files) {
  return std::make_unique<IdxDataset>(files);
}

}  // namespace lockstep::data
