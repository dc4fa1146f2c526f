// Rows of CSV files: columns of numbers, categories, images or texts.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/detail/csv_columns.h"
#include "lockstep/data/detail/image_reader.h"
#include "lockstep/data/detail/pool.h"
#include "lockstep/data/sources.h"
#include "lockstep/data/subset.h"
#include "lockstep/tokenizer/encoder.h"

namespace lockstep::data {
namespace {

using config::ColumnType;
using detail::CsvCell;
using detail::CsvColumn;
using detail::CsvReader;
using detail::CsvRoles;
using Path = std::filesystem::path;

// The rows of a part.
struct Table {
  std::vector<float> numbers;  // of the input, row after row
  std::vector<std::string> images;
  std::vector<std::vector<std::int64_t>> texts;  // their tokens
  std::vector<std::int64_t> classes;             // the target, where it is whole
  std::vector<float> targets;                    // else
  std::vector<float> weights;
  std::size_t rows = 0;
};

// How rows become samples, alike for both parts.
struct Form {
  CsvRoles roles;
  std::int64_t width = 0;             // of the numbers
  std::optional<std::size_t> single;  // of roles.input: the image or the text
  bool has_classes = false;
  bool standardizes = true;

  ColumnType input_type() const {
    return single ? roles.input[*single].type : ColumnType::number;
  }
};

Form form_of(CsvReader& train, const config::DataConfig& config) {
  Form form{.roles = detail::roles_of(train, config),
            .standardizes = config.table.standardize};
  const auto& [input, target, weight, rows] = form.roles;
  for (std::size_t i = 0; i < input.size(); ++i) {
    const auto type = input[i].type;
    if (type == ColumnType::number || type == ColumnType::category) {
      form.width += input[i].width();
    } else if (!form.single) {
      form.single = i;
    } else {
      throw Error(Fault::config, "data.input: '", input[*form.single].name, "' and '",
                  input[i].name, "' of ", train.path(),
                  " are images or texts, of which an input has one; name the one");
    }
  }
  constexpr std::int64_t kWidest = 1 << 20;
  if (form.width > kWidest) {
    throw Error(Fault::config, "data.input: the categories of ", train.path(),
                " would make ", form.width,
                " values of a row; leave columns out that name a row");
  }
  const auto& only = target[0];
  const bool is_asked = config.table.columns.contains(only.name);
  form.has_classes = target.size() == 1 && (only.type == ColumnType::category ||
                                            (only.is_whole && !is_asked));
  return form;
}

// Makes tokens of texts.
class Words {
 public:
  explicit Words(const config::DataConfig& config)
      : words_(tokenizer::Tokenizer::load(config.text.tokenizer)),
        encoder_(words_),
        longest_(static_cast<std::size_t>(config.sequence)) {}

  std::vector<std::int64_t> encode(std::string_view text) {
    tokens_.clear();
    encoder_.encode(text, tokenizer::Special::refuse, tokens_);
    tokens_.resize(std::min(tokens_.size(), longest_));
    return {tokens_.begin(), tokens_.end()};
  }

 private:
  tokenizer::Tokenizer words_;
  tokenizer::Encoder encoder_;
  std::size_t longest_;
  std::vector<tokenizer::Token> tokens_;
};

// Reads the rows of a file.
class TableReader {
 public:
  TableReader(CsvReader& file, const Form& form, Words* words)
      : file_(file), form_(form), words_(words) {
    const auto& roles = form.roles;
    for (const auto& column : roles.input) inputs_.push_back(place_of(column.name));
    for (const auto& column : roles.target) targets_.push_back(place_of(column.name));
    if (!roles.weight.empty()) weight_ = place_of(roles.weight);
  }

  Table read() {
    Table table;
    detail::CsvRow row;
    file_.rewind();
    while (file_.next(row)) {
      read_input(row, table);
      read_target(row, table);
      if (weight_) table.weights.push_back(weight_of(row));
      ++table.rows;
    }
    return table;
  }

 private:
  std::size_t place_of(const std::string& name) const {
    return detail::column_in(file_, name);
  }

  CsvCell cell(const detail::CsvRow& row, const CsvColumn& column,
               std::size_t place) const {
    return {file_, row.line, column.name, row.cells[place]};
  }

  void read_input(const detail::CsvRow& row, Table& table) {
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const auto& column = form_.roles.input[i];
      const auto at = cell(row, column, inputs_[i]);
      switch (column.type) {
        case ColumnType::number:
          table.numbers.push_back(standardized(detail::number_in(at), column));
          break;
        case ColumnType::category:
          table.numbers.resize(table.numbers.size() + column.categories.size());
          table.numbers[table.numbers.size() - column.categories.size() +
                        static_cast<std::size_t>(detail::category_in(at, column))] = 1;
          break;
        case ColumnType::image:
          table.images.push_back(image_in(at));
          break;
        case ColumnType::text:
          table.texts.push_back(tokens_in(at));
          break;
      }
    }
  }

  float standardized(double number, const CsvColumn& column) const {
    if (!form_.standardizes) return static_cast<float>(number);
    return static_cast<float>((number - column.mean) / column.deviation);
  }

  // Images lie below the file's folder: it may have come from somebody else.
  std::string image_in(const CsvCell& cell) const {
    const Path name(text::trim(cell.text));
    const auto plain = name.lexically_normal();
    const bool leaves = plain.is_absolute() || plain.empty() || *plain.begin() == "..";
    if (leaves) {
      detail::refuse_cell(cell, "is '" + name.string() +
                                    "'; images are named from the folder of the file "
                                    "on, in which they lie");
    }
    return (Path(file_.path()).parent_path() / plain).string();
  }

  std::vector<std::int64_t> tokens_in(const CsvCell& cell) {
    try {
      auto tokens = words_->encode(cell.text);
      if (!tokens.empty()) return tokens;
    } catch (const Error& error) {
      detail::refuse_cell(cell, str("can not be made tokens: ", error.what()));
    }
    detail::refuse_cell(cell, "has no text");
  }

  void read_target(const detail::CsvRow& row, Table& table) const {
    for (std::size_t i = 0; i < targets_.size(); ++i) {
      const auto& column = form_.roles.target[i];
      const auto at = cell(row, column, targets_[i]);
      if (!form_.has_classes) {
        const bool is_missing = targets_.size() > 1 && text::trim(at.text).empty();
        table.targets.push_back(is_missing ? std::numeric_limits<float>::quiet_NaN()
                                           : static_cast<float>(detail::number_in(at)));
      } else if (column.type == ColumnType::category) {
        table.classes.push_back(detail::category_in(at, column));
      } else {
        table.classes.push_back(class_in(at, column));
      }
    }
  }

  static std::int64_t class_in(const CsvCell& cell, const CsvColumn& column) {
    const auto number = detail::number_in(cell);
    if (number == std::floor(number) && number >= 0 && number <= column.most) {
      return static_cast<std::int64_t>(number);
    }
    detail::refuse_cell(cell, str("is ", number,
                                  "; the training rows have the classes "
                                  "0 to ",
                                  column.most));
  }

  float weight_of(const detail::CsvRow& row) const {
    const CsvCell at{file_, row.line, form_.roles.weight, row.cells[*weight_]};
    const auto weight = detail::number_in(at);
    if (weight >= 0) return static_cast<float>(weight);
    detail::refuse_cell(at, str("is ", weight, "; a weight is at least 0"));
  }

  CsvReader& file_;
  const Form& form_;
  Words* words_;                               // null: no column is a text
  std::vector<std::size_t> inputs_, targets_;  // places of columns
  std::optional<std::size_t> weight_;
};

class CsvDataset : public Dataset {
 public:
  CsvDataset(Table table, Form form, const config::DataConfig& config)
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
  Table table_;
  Form form_;
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

}  // namespace

Opened open_csv(const config::DataConfig& config, Split split) {
  CsvReader train(file_of(config, Split::train));
  auto form = form_of(train, config);
  std::optional<Words> words;
  if (form.input_type() == ColumnType::text) {
    if (config.text.tokenizer.empty()) {
      throw Error(Fault::config, "data.tokenizer: is empty, but '",
                  form.roles.input[*form.single].name,
                  "' is a text; name the folder of a tokenizer");
    }
    words.emplace(config);
  }
  auto* const encoder = words ? &*words : nullptr;
  std::optional<CsvReader> eval;
  if (split == Split::eval) eval.emplace(file_of(config, Split::eval));
  auto table = TableReader(eval ? *eval : train, form, encoder).read();
  if (table.rows == 0) {
    throw Error(Fault::io, "data: ", eval->path(), " has no row below its header");
  }
  auto all = std::make_unique<CsvDataset>(std::move(table), std::move(form), config);
  return thinned(std::move(all), sample_limit(config, split));
}

}  // namespace lockstep::data
