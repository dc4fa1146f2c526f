// CIFAR-10 and CIFAR-100 in their binary version.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/data/sources.h"

namespace lockstep::data {
namespace {

using Path = std::filesystem::path;

constexpr std::int64_t kPixels = 3 * 32 * 32;

// The differences between the two.
struct Kind {
  std::string_view folder;         // that the archive makes
  std::vector<std::string> files;  // of the split
  std::int64_t num_labels;         // bytes before the pixels; the last is the class
  std::int64_t num_classes;
  std::vector<Affine> channels;
  std::vector<std::string> class_names = {};
};

Affine channel(float mean, float deviation) {
  return {1 / (255 * deviation), -mean / deviation};
}

Path find_folder(const Path& dir, const Kind& kind) {
  std::error_code ignored;
  for (const auto& folder : {dir, dir / kind.folder}) {
    if (std::filesystem::is_regular_file(folder / kind.files[0], ignored))
      return folder;
  }
  throw Error(Fault::io, "data: '", (dir / kind.files[0]).string(),
              "' is missing (nor is it in ", kind.folder,
              "); set data.dir to the folder of the binary version's files");
}

class Cifar : public Dataset {
 public:
  Cifar(const Path& folder, const Kind& kind, std::int64_t limit)
      : num_labels_(kind.num_labels), record_(kind.num_labels + kPixels) {
    spec_.shape = {3, 32, 32};
    spec_.num_classes = kind.num_classes;
    spec_.class_names = kind.class_names;
    spec_.channels = kind.channels;
    if (kind.num_labels > 1) {
      spec_.fields = {{.name = "coarse", .dtype = torch::kInt64, .num_classes = 20}};
    }
    for (const auto& name : kind.files) {
      if (limit > 0 && size() >= limit) break;
      add_file(folder / name, limit);
    }
  }

  std::int64_t size() const noexcept override {
    return static_cast<std::int64_t>(records_.size()) / record_;
  }
  const SampleSpec& spec() const noexcept override { return spec_; }
  std::int64_t class_of(std::int64_t index) const override {
    return static_cast<std::uint8_t>(records_[at(index) + at_label()]);
  }

  void read_sample(const Visit& visit, const SampleBuffer& room) const override {
    const char* record = records_.data() + at(visit.index);
    std::memcpy(room.input.data(), record + num_labels_, kPixels);
    room.target[0] = class_of(visit.index);
    if (room.fields.empty()) return;
    const std::int64_t coarse = static_cast<std::uint8_t>(record[0]);
    std::memcpy(room.fields[0].data(), &coarse, sizeof coarse);
  }

 private:
  std::size_t at(std::int64_t index) const {
    return static_cast<std::size_t>(index * record_);
  }
  std::size_t at_label() const { return static_cast<std::size_t>(num_labels_ - 1); }

  void add_file(const Path& path, std::int64_t limit) {
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    if (!file) {
      throw Error(Fault::io, "data: cannot read '", path.string(),
                  "'; copy all files of the data set into data.dir");
    }
    const auto bytes = static_cast<std::int64_t>(file.tellg());
    if (bytes <= 0 || bytes % record_ != 0) {
      throw Error(Fault::io, "data: '", path.string(), "' has ", bytes,
                  " bytes, which is not a multiple of ", record_,
                  ", the size of a sample; it is truncated or of another data set: "
                  "copy it again");
    }
    const auto had = size();
    auto count = bytes / record_;
    if (limit > 0) count = std::min(count, limit - had);
    records_.resize(static_cast<std::size_t>((had + count) * record_));
    file.seekg(0);
    file.read(records_.data() + had * record_, count * record_);
    if (!file) throw Error(Fault::io, "data: '", path.string(), "' cannot be read");
    check_labels(path, had, count);
  }

  void check_labels(const Path& path, std::int64_t first, std::int64_t count) const {
    for (auto i = first; i < first + count; ++i) {
      if (class_of(i) < spec_.num_classes) continue;
      throw Error(Fault::io, "data: '", path.string(), "' has the label ", class_of(i),
                  " at sample ", i - first, ", the data set has the classes 0 to ",
                  spec_.num_classes - 1, "; it is damaged or of another data set");
    }
  }

  std::int64_t num_labels_, record_;
  SampleSpec spec_;
  std::vector<char> records_;
};

Opened open_kind(const config::DataConfig& config, Split split, const Kind& kind) {
  const Path dir = require_folder(config, "a folder of the binary version's files");
  return std::make_unique<Cifar>(find_folder(dir, kind), kind,
                                 sample_limit(config, split));
}

}  // namespace

Opened open_cifar10(const config::DataConfig& config, Split split) {
  Kind kind{.folder = "cifar-10-batches-bin",
            .files = {"test_batch.bin"},
            .num_labels = 1,
            .num_classes = 10,
            // Mean and deviation of the training images.
            .channels = {channel(0.4914F, 0.2470F), channel(0.4822F, 0.2435F),
                         channel(0.4465F, 0.2616F)},
            .class_names = {"airplane", "automobile", "bird", "cat", "deer", "dog",
                            "frog", "horse", "ship", "truck"}};
  if (split == Split::train) {
    kind.files = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                  "data_batch_4.bin", "data_batch_5.bin"};
  }
  return open_kind(config, split, kind);
}

Opened open_cifar100(const config::DataConfig& config, Split split) {
  return open_kind(config, split,
                   {.folder = "cifar-100-binary",
                    .files = {split == Split::train ? "train.bin" : "test.bin"},
                    .num_labels = 2,
                    .num_classes = 100,
                    .channels = {channel(0.5071F, 0.2673F), channel(0.4865F, 0.2564F),
                                 channel(0.4409F, 0.2762F)}});
}

}  // namespace lockstep::data
