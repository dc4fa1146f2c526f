#include "lockstep/data/open.h"

#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/idx.h"

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

// `name` in `folder`, plain or gzip'ed.
Path find_file(const Path& folder, std::string_view name, std::string_view remedy) {
  const Path plain = folder / name;
  Path packed = plain;
  packed += ".gz";
  std::error_code ignored;
  if (std::filesystem::is_regular_file(packed, ignored)) return packed;
  if (std::filesystem::is_regular_file(plain, ignored)) return plain;
  throw Error(Fault::io, "data: '", packed.string(),
              "' is missing (nor is it there without .gz); ", remedy);
}

std::unique_ptr<Dataset> open_mnist_like(const config::DataConfig& config, Split split,
                                         const Path& folder, std::string_view remedy,
                                         IdxFiles files) {
  const auto names = names_of(split);
  files.images = find_file(folder, names.images, remedy);
  files.labels = find_file(folder, names.labels, remedy);
  files.limit = split == Split::train ? config.train_samples : config.eval_samples;
  return open_idx(files);
}

std::unique_ptr<Dataset> open_fashion_mnist(const config::DataConfig& config,
                                            Split split) {
  const Path folder =
      config.dir.empty() ? Path("/usr/share/datasets/fashion-mnist") : Path(config.dir);
  const std::string remedy =
      config.dir.empty()
          ? "install the package that provides it: apt-get install "
            "dataset-fashion-mnist, or set data.dir"
          : "set data.dir to the folder of the four IDX files, or leave it "
            "empty to use the package dataset-fashion-mnist";
  // Mean and deviation of the pixels of the training images.
  return open_mnist_like(config, split, folder, remedy,
                         {.num_classes = 10, .mean = 0.2860F, .deviation = 0.3530F});
}

std::unique_ptr<Dataset> open_idx_folder(const config::DataConfig& config,
                                         Split split) {
  if (config.dir.empty()) {
    throw Error(Fault::config,
                "data.dir: the data set 'idx' is a folder of four IDX files "
                "(train-images-idx3-ubyte[.gz] and so on); set data.dir to it");
  }
  return open_mnist_like(config, split, config.dir,
                         "set data.dir to the folder of the four IDX files",
                         {.mean = 0.5F, .deviation = 0.5F});
}

struct Entry {
  std::string_view name;
  std::unique_ptr<Dataset> (*open)(const config::DataConfig&, Split);
};

// A new data set is a new source file and a line here.
constexpr std::array kEntries = {
    Entry{"fashion_mnist", open_fashion_mnist},
    Entry{"idx", open_idx_folder},
};

}  // namespace

std::unique_ptr<Dataset> open(const config::DataConfig& config, Split split) {
  std::vector<std::string> names;
  for (const auto& entry : kEntries) {
    if (entry.name == config.name) return entry.open(config, split);
    names.emplace_back(entry.name);
  }
  throw Error(Fault::config, "data.name: there is no data set '", config.name,
              "'; there are ", text::join(names, ", "),
              text::did_you_mean(config.name, names));
}

}  // namespace lockstep::data
