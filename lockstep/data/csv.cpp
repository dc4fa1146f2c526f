// Rows of CSV files: columns of numbers, categories, images or texts.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/detail/csv_table.h"
#include "lockstep/data/detail/image_reader.h"
#include "lockstep/data/detail/pool.h"
#include "lockstep/data/sources.h"
#include "lockstep/data/subset.h"

namespace lockstep::data {
namespace {

using config::ColumnType;
using detail::CsvForm;
using detail::CsvReader;
using detail::CsvTable;
using Path = std::filesystem::path;

class CsvDataset : public Dataset {
 public:
  CsvDataset(CsvTable table, CsvForm form, const config::DataConfig& config)
      : table_(std::move(table)), form_(std::move(form)) {
    describe_input(config);
    const auto& target = form_.roles.target;
    if (form_.has_classes) {
      spec_.class_names = target[0].categories;
      spec_.num_classes = spec_.class_names.empty()
                              ? static_cast<std::int64_t>(target[0].most) + 1
                              : static_cast<std::int64_t>(spec_.class_names.size());
    } else {
      spec_.target_dtype = torch::kFloat32;
      if (target.size() > 1) {
        spec_.target_shape = {static_cast<std::int64_t>(target.size())};
      }
    }
    if (form_.single && form_.width > 0) {
      spec_.fields.push_back({.name = "columns", .shape = {form_.width}});
    }
    if (!table_.weights.empty()) spec_.fields.push_back({.name = "target_weight"});
  }

  std::int64_t size() const noexcept override {
    return static_cast<std::int64_t>(table_.rows);
  }
  const SampleSpec& spec() const noexcept override { return spec_; }

  std::int64_t length_of(std::int64_t index) const override {
    if (table_.texts.empty()) return Dataset::length_of(index);
    return static_cast<std::int64_t>(
        table_.texts[static_cast<std::size_t>(index)].size());
  }

  void read_sample(const Visit& visit, const SampleBuffer& room) const override {
    const auto row = static_cast<std::size_t>(visit.index);
    std::size_t field = 0;
    switch (form_.input_type()) {
      case ColumnType::image:
        read_image(row, room);
        break;
      case ColumnType::text:
        copy(table_.texts[row], 0, room.input);
        room.lengths[kInput] = static_cast<std::int64_t>(table_.texts[row].size());
        break;
      default:
        copy_row(table_.numbers, row, room.input);
    }
    if (form_.single && form_.width > 0) {
      copy_row(table_.numbers, row, room.fields[field++]);
    }
    if (form_.has_classes) {
      copy_row(table_.classes, row, room.target_bytes);
    } else {
      copy_row(table_.targets, row, room.target_bytes);
    }
    if (!table_.weights.empty()) copy_row(table_.weights, row, room.fields[field]);
  }

 private:
  void describe_input(const config::DataConfig& config) {
    spec_.dtype = torch::kFloat32;
    spec_.shape = {form_.width};
    if (form_.input_type() == ColumnType::image) {
      shape_ = shape_for(config.resize);
      spec_.dtype = torch::kUInt8;
      spec_.shape = {3, shape_.height, shape_.width};
      spec_.channels = detail::imagenet_colors();
    } else if (form_.input_type() == ColumnType::text) {
      spec_.dtype = torch::kInt64;
      spec_.shape = {config.sequence};
      spec_.varies = true;
    }
  }

  detail::ImageShape shape_for(std::int64_t side) const {
    const auto& first = table_.images[0];
    const auto reader = readers_.take();
    const auto file = side > 0 ? detail::Bytes{} : reader->load(first);
    try {
      return detail::image_shape(*reader, file, side);
    } catch (const Error& error) {
      throw Error(Fault::io, "data: the first image, '", first, "': ", error.what());
    }
  }

  void read_image(std::size_t row, const SampleBuffer& room) const {
    const auto& path = table_.images[row];
    const auto reader = readers_.take();
    const auto file = reader->load(path);
    try {
      reader->read(file, shape_, reinterpret_cast<std::uint8_t*>(room.input.data()));
    } catch (const Error& error) {
      throw Error(Fault::io, "'", path, "': ", error.what());
    }
  }

  // Copies values from `first` on: as many as there are, at most those that fit.
  template <typename T>
  static void copy(const std::vector<T>& from, std::size_t first,
                   std::span<std::byte> to) {
    const auto bytes = std::min(to.size(), (from.size() - first) * sizeof(T));
    if (bytes > 0) std::memcpy(to.data(), from.data() + first, bytes);
  }

  template <typename T>
  static void copy_row(const std::vector<T>& from, std::size_t row,
                       std::span<std::byte> to) {
    copy(from, row * (to.size() / sizeof(T)), to);
  }

  mutable detail::Pool<detail::ImageReader> readers_;
  CsvTable table_;
  CsvForm form_;
  detail::ImageShape shape_;
  SampleSpec spec_;
};

// Returns the file of a part: the only one, by its name, or without one in two.
std::string file_of(const config::DataConfig& config, Split split) {
  const Path folder = require_folder(config, "a folder of .csv files");
  if (std::filesystem::is_regular_file(folder)) {
    if (split == Split::train) return folder.string();
    throw Error(Fault::config, "data.dir: '", folder.string(),
                "' is one file, and there is none to evaluate on; hold samples back "
                "with data.split=0.1");
  }
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const auto kind = text::lower(entry.path().extension().string());
    if (kind != ".csv" && kind != ".tsv") continue;
    const bool is_eval = names_eval(entry.path().filename().string());
    if (is_eval == (split == Split::eval)) files.push_back(entry.path().string());
  }
  if (error) {
    throw Error(Fault::io, "data: '", folder.string(),
                "' can not be read: ", error.message());
  }
  if (files.size() == 1) return files[0];
  std::sort(files.begin(), files.end());
  throw Error(Fault::io, "data: '", folder.string(), "' has ",
              files.empty() ? "no .csv file" : text::join(files, " and "),
              split == Split::train ? " to train on; data.dir may name the file"
              : files.empty()       ? " with 'val' or 'test' in its name to evaluate "
                                      "on; add one, or hold samples back with "
                                      "data.split=0.1"
                                    : " to evaluate on; keep one");
}

CsvTable read_eval(const CsvForm& form, const config::DataConfig& config) {
  CsvReader eval(file_of(config, Split::eval));
  return detail::read_table(eval, form, config);
}

}  // namespace

Opened open_csv(const config::DataConfig& config, Split split) {
  CsvReader train(file_of(config, Split::train));
  auto form = detail::form_of(train, config);
  auto table = split == Split::train ? detail::read_table(train, form, config)
                                     : read_eval(form, config);
  auto all = std::make_unique<CsvDataset>(std::move(table), std::move(form), config);
  return thinned(std::move(all), sample_limit(config, split));
}

}  // namespace lockstep::data
