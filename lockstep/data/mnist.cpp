// Data sets of four IDX files: Fashion-MNIST and its relatives.
#include <filesystem>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/data/idx.h"
#include "lockstep/data/sources.h"

namespace lockstep::data {
namespace {

using Path = std::filesystem::path;

// The four files of MNIST and its relatives, by their usual names.
struct Names {
  std::string_view images, labels;
};

Names names_of(Split split) {
  if (split == Split::train)
    return {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"};
  return {"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};
}

// Finds `name` in `folder`, plain or gzip'ed.
Path find_file(const Path& folder, std::string_view name, std::string_view remedy) {
  const Path plain = folder / name;
  Path packed = plain;
  packed += ".gz";
  std::error_code ignored;
  if (std::filesystem::is_regular_file(packed, ignored)) return packed;
  if (std::filesystem::is_regular_file(plain, ignored)) return plain;
  throw Error(Fault::io, "data: '", packed.string(),
              "' is missing (and so is the file without .gz); ", remedy);
}

// The folder of the four files, and what to do if one is missing.
struct IdxFolder {
  Path path;
  std::string remedy;
};

// `files` has the facts that the files do not have.
IdxFiles files_in(const IdxFolder& folder, Split split, IdxFiles files) {
  const auto names = names_of(split);
  files.images = find_file(folder.path, names.images, folder.remedy);
  files.labels = find_file(folder.path, names.labels, folder.remedy);
  return files;
}

}  // namespace

Opened open_fashion_mnist(const config::DataConfig& config, Split split) {
  const Path folder =
      config.dir.empty() ? Path("/usr/share/datasets/fashion-mnist") : Path(config.dir);
  const std::string remedy =
      config.dir.empty()
          ? "install the package that provides it: apt-get install "
            "dataset-fashion-mnist, or set data.dir"
          : "set data.dir to the folder of the four IDX files, or leave it "
            "empty to use the package dataset-fashion-mnist";
  // Mean and deviation of the pixels of the training images.
  return open_idx(
      files_in({folder, remedy}, split,
               {.limit = sample_limit(config, split),
                .num_classes = 10,
                .class_names = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                                "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"},
                .mean = 0.2860F,
                .deviation = 0.3530F}));
}

Opened open_idx(const config::DataConfig& config, Split split) {
  const Path folder = require_folder(
      config, "a folder of four IDX files (train-images-idx3-ubyte[.gz] and so on)");
  return open_idx(files_in(
      {folder, "set data.dir to the folder of the four IDX files"}, split,
      {.limit = sample_limit(config, split), .mean = 0.5F, .deviation = 0.5F}));
}

}  // namespace lockstep::data
