// Tar shards of samples: files that have a name in common up to its first point.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/detail/image_reader.h"
#include "lockstep/data/detail/pool.h"
#include "lockstep/data/detail/tar.h"
#include "lockstep/data/sources.h"
#include "lockstep/data/subset.h"

namespace lockstep::data {
namespace {

using Path = std::filesystem::path;

// A sample before its class has a number.
struct RawSample {
  std::string where;  // "train-000.tar: n0001"
  detail::Bytes image;
  std::string label;
};

// The endings of the files that make a sample.
class Endings {
 public:
  explicit Endings(const config::TableData& config)
      : input_(one_of(config.input, "data.input", "")),
        target_(one_of(config.target, "data.target", "cls")) {
    if (target_.starts_with("json.")) {
      key_ = target_.substr(5);
      target_ = "json";
    }
  }

  bool is_input(const std::string& ending) const {
    return input_.empty() ? detail::is_image_name("." + ending) : ending == input_;
  }
  bool is_target(const std::string& ending) const { return ending == target_; }

  std::string input() const { return input_.empty() ? "jpg, jpeg or png" : input_; }
  const std::string& target() const { return target_; }

  // Returns the label that a target's file says.
  std::string label_in(detail::Bytes file) const {
    const std::string_view body(reinterpret_cast<const char*>(file.data()),
                                file.size());
    if (key_.empty()) return label_of(std::string(text::trim(body)));
    const auto json = nlohmann::json::parse(body, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains(key_)) {
      throw Error(Fault::io, "its json has no \"", key_, "\" (data.target=json.", key_,
                  ")");
    }
    const auto& value = json.at(key_);
    if (value.is_string()) return label_of(value.get<std::string>());
    // A list may lie in so many others that its text takes more stack than there is.
    if (value.is_number() || value.is_boolean()) return value.dump();
    throw Error(Fault::io, "the \"", key_, "\" of its json is of type ",
                value.type_name(), ", not a number or a name");
  }

 private:
  std::string label_of(std::string text) const {
    if (!text.empty()) return text;
    throw Error(Fault::io, "its class is empty (data.target=", target_, ")");
  }

  static std::string one_of(const std::vector<std::string>& names,
                            std::string_view knob, std::string usual) {
    if (names.empty()) return usual;
    if (names.size() == 1) {
      return names[0].starts_with('.') ? names[0].substr(1) : names[0];
    }
    throw Error(Fault::config, knob, ": ", names.size(),
                " endings, but data.name=webdataset takes one");
  }

  std::string input_, target_, key_;
};

std::vector<Path> shards_in(const config::DataConfig& config, Split split) {
  const Path folder = require_folder(config, "a folder of .tar files");
  std::vector<Path> shards;
  std::error_code error;
  bool has_any = false;
  using Walk = std::filesystem::recursive_directory_iterator;
  for (Walk at(folder, error); !error && at != Walk(); at.increment(error)) {
    const auto& path = at->path();
    if (path.extension() != ".tar") continue;
    has_any = true;
    const bool is_eval = names_eval(path.lexically_relative(folder).string());
    if (is_eval == (split == Split::eval)) shards.push_back(path);
  }
  if (error) {
    throw Error(Fault::io, "data: '", folder.string(),
                "' cannot be read: ", error.message());
  }
  if (shards.empty()) {
    throw Error(Fault::io, "data: '", folder.string(), "' has no .tar file ",
                !has_any                ? "at all; set data.dir to the folder of shards"
                : split == Split::train ? "to train on; all have 'val' or 'test' in "
                                          "their names"
                                        : "with 'val' or 'test' in its name to "
                                          "evaluate on; add one, or hold samples back "
                                          "with data.split=0.1");
  }
  std::sort(shards.begin(), shards.end());
  return shards;
}

// The shards of a part, mapped, and the samples in them.
class Shards {
 public:
  Shards(const std::vector<Path>& paths, Endings endings)
      : endings_(std::move(endings)) {
    for (const auto& path : paths) {
      files_.emplace_back(path);
      read(path.string());
    }
  }

  const std::vector<RawSample>& samples() const { return samples_; }

 private:
  struct Gathered {
    std::string key;
    std::optional<detail::Bytes> input, target;
  };

  void read(const std::string& path) {
    Gathered gathered;
    for (const auto& [name, bytes] : detail::read_tar(files_.back(), path)) {
      const auto slash = name.rfind('/');
      const auto begin = slash == std::string::npos ? 0 : slash + 1;
      const auto point = name.find('.', begin);
      if (point == std::string::npos || point == begin) continue;  // of no sample
      const auto key = name.substr(0, point);
      const auto ending = text::lower(name.substr(point + 1));
      if (key != gathered.key) {
        finish(gathered, path);
        gathered = {.key = key};
      }
      const MemberName member{path, name};
      if (endings_.is_input(ending)) put(gathered.input, bytes, member);
      if (endings_.is_target(ending)) put(gathered.target, bytes, member);
    }
    finish(gathered, path);
  }

  struct MemberName {
    const std::string& shard;
    const std::string& name;
  };

  static void put(std::optional<detail::Bytes>& place, detail::Bytes bytes,
                  const MemberName& member) {
    if (place) {
      throw Error(Fault::io, "data: '", member.shard, "': '", member.name,
                  "' is a second file of its kind in a sample; data.input and "
                  "data.target name the endings that count");
    }
    place = bytes;
  }

  void finish(const Gathered& gathered, const std::string& path) {
    const auto& [key, input, target] = gathered;
    if (key.empty() || (!input && !target)) return;
    const auto where = path + ": " + key;
    if (!input || !target) {
      throw Error(Fault::io, "data: '", where, "' has no file that ends in .",
                  input ? endings_.target() : endings_.input(),
                  "; the files of a sample stand together, and data.input and "
                  "data.target name their endings");
    }
    try {
      samples_.push_back({where, *input, endings_.label_in(*target)});
    } catch (const Error& error) {
      throw Error(Fault::io, "data: '", where, "': ", error.what());
    }
  }

  Endings endings_;
  std::vector<detail::MappedFile> files_;
  std::vector<RawSample> samples_;
};

// The classes of the training samples: numbers as they are, else names in their order.
class ClassNumbers {
 public:
  explicit ClassNumbers(const std::vector<RawSample>& samples) {
    std::set<std::string> names;
    for (const auto& sample : samples) names.insert(sample.label);
    for (const auto& name : names) {
      const auto number = as_number(name);
      if (!number) {
        names_.assign(names.begin(), names.end());
        count_ = static_cast<std::int64_t>(names_.size());
        return;
      }
      count_ = std::max(count_, *number + 1);
    }
  }

  std::int64_t count() const { return count_; }
  const std::vector<std::string>& names() const { return names_; }

  std::int64_t of(const RawSample& sample) const {
    const auto& label = sample.label;
    if (names_.empty()) {
      const auto number = as_number(label);
      if (number && *number < count_) return *number;
    } else {
      const auto at = std::lower_bound(names_.begin(), names_.end(), label);
      if (at != names_.end() && *at == label) return at - names_.begin();
    }
    throw Error(Fault::io, "data: '", sample.where, "' is of class '", label,
                "', of which there is no training sample");
  }

 private:
  static std::optional<std::int64_t> as_number(const std::string& label) {
    std::int64_t number = 0;
    const auto* end = label.data() + label.size();
    const auto [at, error] = std::from_chars(label.data(), end, number);
    constexpr std::int64_t kMostClasses = 1 << 24;
    if (error != std::errc() || at != end || number < 0 || number >= kMostClasses) {
      return std::nullopt;
    }
    return number;
  }

  std::int64_t count_ = 0;
  std::vector<std::string> names_;
};

class WebDataset : public Dataset {
 public:
  WebDataset(Shards shards, const ClassNumbers& classes, std::int64_t side)
      : shards_(std::move(shards)), shape_(shape_for(side)) {
    spec_.shape = {3, shape_.height, shape_.width};
    spec_.num_classes = classes.count();
    spec_.class_names = classes.names();
    spec_.channels = detail::imagenet_colors();
    for (const auto& sample : samples()) labels_.push_back(classes.of(sample));
  }

  std::int64_t size() const noexcept override {
    return static_cast<std::int64_t>(labels_.size());
  }
  const SampleSpec& spec() const noexcept override { return spec_; }
  std::int64_t class_of(std::int64_t index) const override {
    return labels_[static_cast<std::size_t>(index)];
  }

  std::int64_t read(std::int64_t index, std::span<std::byte> input) const override {
    const auto& sample = samples()[static_cast<std::size_t>(index)];
    const auto reader = readers_.take();
    try {
      reader->read(sample.image, shape_, reinterpret_cast<std::uint8_t*>(input.data()));
    } catch (const Error& error) {
      throw Error(Fault::io, "'", sample.where, "': ", error.what());
    }
    return class_of(index);
  }

 private:
  const std::vector<RawSample>& samples() const { return shards_.samples(); }

  detail::ImageShape shape_for(std::int64_t side) const {
    const auto& first = samples()[0];
    const auto reader = readers_.take();
    try {
      return detail::image_shape(*reader, first.image, side);
    } catch (const Error& error) {
      throw Error(Fault::io, "data: '", first.where, "': ", error.what());
    }
  }

  mutable detail::Pool<detail::ImageReader> readers_;
  Shards shards_;
  detail::ImageShape shape_;
  std::vector<std::int64_t> labels_;
  SampleSpec spec_;
};

Shards open_shards(const config::DataConfig& config, Split split,
                   const Endings& endings) {
  Shards shards(shards_in(config, split), endings);
  if (!shards.samples().empty()) return shards;
  throw Error(Fault::io, "data: the .tar files to ",
              split == Split::train ? "train" : "evaluate", " on in '", config.dir,
              "' hold no sample: files NAME.", endings.input(), " and NAME.",
              endings.target());
}

}  // namespace

Opened open_webdataset(const config::DataConfig& config, Split split) {
  const Endings endings(config.table);
  auto train = open_shards(config, Split::train, endings);
  const ClassNumbers classes(train.samples());
  auto shards = split == Split::train ? std::move(train)
                                      : open_shards(config, Split::eval, endings);
  auto all = std::make_unique<WebDataset>(std::move(shards), classes, config.resize);
  return thinned(std::move(all), sample_limit(config, split));
}

}  // namespace lockstep::data
