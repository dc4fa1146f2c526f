// A folder of images for each class.
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/detail/image_reader.h"
#include "lockstep/data/detail/pool.h"
#include "lockstep/data/sources.h"
#include "lockstep/data/subset.h"

namespace lockstep::data {
namespace {

using Path = std::filesystem::path;

// Returns the entries of a folder, sorted, so that all machines agree; hidden ones left
// out.
std::vector<Path> sorted_entries(const Path& folder, bool folders) {
  std::vector<Path> entries;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().filename().string()[0] == '.') continue;
    const bool fits = folders ? entry.is_directory()
                              : entry.is_regular_file() &&
                                    detail::is_image_name(entry.path().string());
    if (fits) entries.push_back(entry.path());
  }
  if (error) {
    throw Error(Fault::io, "data: cannot list '", folder.string(),
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

struct ImageFile {
  std::string path;
  std::int64_t label = 0;
};

class ImageFolder : public Dataset {
 public:
  ImageFolder(std::vector<ImageFile> samples,
              const std::map<std::string, std::int64_t>& classes, std::int64_t side)
      : samples_(std::move(samples)), shape_(shape_for(side)) {
    spec_.shape = {3, shape_.height, shape_.width};
    spec_.num_classes = static_cast<std::int64_t>(classes.size());
    for (const auto& [name, label] : classes) spec_.class_names.push_back(name);
    spec_.channels = detail::imagenet_colors();
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
    const auto reader = readers_.take();
    const auto file = reader->load(sample.path);
    try {
      reader->read(file, shape_, reinterpret_cast<std::uint8_t*>(input.data()));
    } catch (const Error& error) {
      throw Error(Fault::io, "'", sample.path, "': ", error.what());
    }
    return sample.label;
  }

 private:
  detail::ImageShape shape_for(std::int64_t side) const {
    const auto& path = samples_[0].path;
    const auto reader = readers_.take();
    const auto file = side > 0 ? detail::Bytes{} : reader->load(path);
    try {
      return detail::image_shape(*reader, file, side);
    } catch (const Error& error) {
      throw Error(Fault::io, "data: the first image, '", path, "': ", error.what());
    }
  }

  mutable detail::Pool<detail::ImageReader> readers_;
  std::vector<ImageFile> samples_;
  detail::ImageShape shape_;
  SampleSpec spec_;
};

std::vector<ImageFile> list_samples(const Path& folder,
                                    const std::map<std::string, std::int64_t>& classes,
                                    const Path& train) {
  std::vector<ImageFile> samples;
  for (const auto& path : sorted_entries(folder, /*folders=*/true)) {
    const auto found = classes.find(path.filename().string());
    if (found == classes.end()) {
      throw Error(Fault::io, "data: '", path.string(), "' is not a class of '",
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
