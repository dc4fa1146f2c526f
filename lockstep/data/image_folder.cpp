// A folder of images for each class.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/text.h"
#include "lockstep/data/detail/decode.h"
#include "lockstep/data/detail/pool.h"
#include "lockstep/data/sources.h"
#include "lockstep/data/subset.h"

namespace lockstep::data {
namespace {

using Path = std::filesystem::path;

bool is_image_name(const Path& path) {
  const auto end = text::lower(path.extension().string());
  return end == ".jpg" || end == ".jpeg" || end == ".png";
}

// Returns the entries of a folder, sorted, so that all machines agree; hidden ones left
// out.
std::vector<Path> sorted_entries(const Path& folder, bool folders) {
  std::vector<Path> entries;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().filename().string()[0] == '.') continue;
    const bool fits = folders ? entry.is_directory()
                              : entry.is_regular_file() && is_image_name(entry.path());
    if (fits) entries.push_back(entry.path());
  }
  if (error) {
    throw Error(Fault::io, "data: can not list '", folder.string(),
                "': ", error.message(), "; check data.dir");
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

// Returns the folder of a split's classes. Without a folder of its own for training,
// the data set has one part only.
Path folder_of_split(const Path& dir, Split split) {
  std::error_code ignored;
  const auto is_folder = [&](const char* name) {
    return std::filesystem::is_directory(dir / name, ignored);
  };
  if (split == Split::train) return is_folder("train") ? dir / "train" : dir;
  for (const char* name : {"val", "valid", "validation", "test", "eval"}) {
    if (is_folder(name)) return dir / name;
  }
  throw Error(
      Fault::io, "data: '", dir.string(),
      "' has no folder val or test to evaluate on; make one, or hold samples of "
      "the training images back with data.split");
}

// Classes are numbered in the order of their names in the training folder.
std::map<std::string, std::int64_t> classes_in(const Path& folder) {
  std::map<std::string, std::int64_t> classes;
  for (const auto& path : sorted_entries(folder, /*folders=*/true)) {
    classes.emplace(path.filename().string(),
                    static_cast<std::int64_t>(classes.size()));
  }
  if (classes.empty()) {
    throw Error(Fault::io, "data: '", folder.string(),
                "' holds no folders, one for each class; check data.dir");
  }
  return classes;
}

// The tools of a thread that reads images.
struct Tools {
  detail::Decoder decoder;
  Resizer resizer;
  std::vector<std::byte> file;

  detail::Bytes load(const std::string& path) {
    const files::Descriptor source(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat about {};
    if (!source || ::fstat(source.get(), &about) != 0) fail(path);
    const auto size = static_cast<std::size_t>(about.st_size);
    if (file.size() < size) file.resize(size);
    std::size_t have = 0;
    while (have < size) {
      const auto got = ::read(source.get(), file.data() + have, size - have);
      if (got < 0) fail(path);
      if (got == 0) break;
      have += static_cast<std::size_t>(got);
    }
    return {file.data(), have};
  }

 private:
  [[noreturn]] static void fail(const std::string& path) {
    throw Error(Fault::io, "'", path, "' can not be read: ", std::strerror(errno));
  }
};

struct ImageFile {
  std::string path;
  std::int64_t label = 0;
};

class ImageFolder : public Dataset {
 public:
  ImageFolder(std::vector<ImageFile> samples,
              const std::map<std::string, std::int64_t>& classes, std::int64_t side)
      : samples_(std::move(samples)), side_(side) {
    spec_.shape = {3, side, side};
    spec_.num_classes = static_cast<std::int64_t>(classes.size());
    for (const auto& [name, label] : classes) spec_.class_names.push_back(name);
    // The mean and deviation of ImageNet's colors, which pretrained weights expect.
    for (const auto& [mean, deviation] :
         {std::pair(0.485F, 0.229F), {0.456F, 0.224F}, {0.406F, 0.225F}}) {
      spec_.channels.push_back({1 / (255 * deviation), -mean / deviation});
    }
    if (side > 0) return;
    const auto first = size_of(samples_[0].path);
    spec_.shape = {3, first.height, first.width};
  }

  std::int64_t size() const noexcept override {
    return static_cast<std::int64_t>(samples_.size());
  }
  const SampleSpec& spec() const noexcept override { return spec_; }
  std::int64_t class_of(std::int64_t index) const override {
    return samples_[static_cast<std::size_t>(index)].label;
  }

  std::int64_t read(std::int64_t index, std::span<std::byte> input) const override {
    const auto& sample = samples_[static_cast<std::size_t>(index)];
    const auto tools = tools_.take();
    const auto file = tools->load(sample.path);
    try {
      const auto pixels = tools->decoder.decode(file, side_);
      write(pixels, tools->resizer, reinterpret_cast<std::uint8_t*>(input.data()));
    } catch (const Error& error) {
      throw Error(Fault::io, "'", sample.path, "': ", error.what());
    }
    return sample.label;
  }

 private:
  void write(const Pixels<std::uint8_t>& pixels, Resizer& resizer,
             std::uint8_t* out) const {
    if (pixels.height == spec_.shape[1] && pixels.width == spec_.shape[2]) {
      return detail::split_planes(pixels, out);
    }
    if (side_ == 0) {
      throw Error(Fault::io, "it has ", pixels.height, " x ", pixels.width,
                  " pixels, the first image has ", spec_.shape[1], " x ",
                  spec_.shape[2], "; set data.resize to bring all to one size");
    }
    // The middle square is taken.
    const auto side = std::min(pixels.height, pixels.width);
    auto square = pixels;
    square.data += (pixels.height - side) / 2 * pixels.row_stride +
                   (pixels.width - side) / 2 * pixels.step;
    square.height = square.width = side;
    resizer.resize(square, Image<std::uint8_t>{out, 3, side_, side_});
  }

  ImageSize size_of(const std::string& path) const {
    const auto tools = tools_.take();
    try {
      return tools->decoder.size_of(tools->load(path));
    } catch (const Error& error) {
      throw Error(Fault::io, "data: the first image, '", path, "': ", error.what());
    }
  }

  std::vector<ImageFile> samples_;
  std::int64_t side_;
  SampleSpec spec_;
  mutable detail::Pool<Tools> tools_;
};

std::vector<ImageFile> list_samples(const Path& folder,
                                    const std::map<std::string, std::int64_t>& classes,
                                    const Path& train) {
  std::vector<ImageFile> samples;
  for (const auto& path : sorted_entries(folder, /*folders=*/true)) {
    const auto found = classes.find(path.filename().string());
    if (found == classes.end()) {
      throw Error(Fault::io, "data: '", path.string(), "' is no class of '",
                  train.string(), "'; add it there, or remove it");
    }
    const auto images = sorted_entries(path, /*folders=*/false);
    if (images.empty()) {
      throw Error(Fault::io, "data: the class '", path.string(),
                  "' has no JPEG or PNG file; add some, or remove the folder");
    }
    for (const auto& image : images) samples.push_back({image.string(), found->second});
  }
  if (samples.empty()) {
    throw Error(Fault::io, "data: '", folder.string(), "' holds no images");
  }
  return samples;
}

}  // namespace

Opened open_image_folder(const config::DataConfig& config, Split split) {
  const Path dir =
      require_folder(config, "a folder with a folder of images for each class");
  const auto train = folder_of_split(dir, Split::train);
  const auto classes = classes_in(train);
  auto samples = list_samples(folder_of_split(dir, split), classes, train);
  auto all = std::make_unique<ImageFolder>(std::move(samples), classes, config.resize);
  return thinned(std::move(all), sample_limit(config, split));
}

}  // namespace lockstep::data
