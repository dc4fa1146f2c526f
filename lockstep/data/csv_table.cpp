#include "lockstep/data/detail/csv_table.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/tokenizer/encoder.h"

namespace lockstep::data::detail {
namespace {

using config::ColumnType;
using Path = std::filesystem::path;

// Makes tokens of texts.
class CsvWords {
 public:
  explicit CsvWords(const config::DataConfig& config)
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
  TableReader(CsvReader& file, const CsvForm& form, CsvWords* words)
      : file_(file), form_(form), words_(words) {
    const auto& roles = form.roles;
    for (const auto& column : roles.input) inputs_.push_back(place_of(column.name));
    for (const auto& column : roles.target) targets_.push_back(place_of(column.name));
    if (!roles.weight.empty()) weight_ = place_of(roles.weight);
  }

  CsvTable read() {
    CsvTable table;
    CsvRow row;
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
  std::size_t place_of(const std::string& name) const { return column_in(file_, name); }

  CsvCell cell(const CsvRow& row, const CsvColumn& column, std::size_t place) const {
    return {file_, row.line, column.name, row.cells[place]};
  }

  void read_input(const CsvRow& row, CsvTable& table) {
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const auto& column = form_.roles.input[i];
      const auto at = cell(row, column, inputs_[i]);
      switch (column.type) {
        case ColumnType::number:
          table.numbers.push_back(standardized(number_in(at), column));
          break;
        case ColumnType::category:
          table.numbers.resize(table.numbers.size() + column.categories.size());
          table.numbers[table.numbers.size() - column.categories.size() +
                        static_cast<std::size_t>(category_in(at, column))] = 1;
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
      refuse_cell(cell, "is '" + name.string() +
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
      refuse_cell(cell, str("can not be made tokens: ", error.what()));
    }
    refuse_cell(cell, "has no text");
  }

  void read_target(const CsvRow& row, CsvTable& table) const {
    for (std::size_t i = 0; i < targets_.size(); ++i) {
      const auto& column = form_.roles.target[i];
      const auto at = cell(row, column, targets_[i]);
      if (!form_.has_classes) {
        const bool is_missing = targets_.size() > 1 && text::trim(at.text).empty();
        table.targets.push_back(is_missing ? std::numeric_limits<float>::quiet_NaN()
                                           : static_cast<float>(number_in(at)));
      } else if (column.type == ColumnType::category) {
        table.classes.push_back(category_in(at, column));
      } else {
        table.classes.push_back(class_in(at, column));
      }
    }
  }

  static std::int64_t class_in(const CsvCell& cell, const CsvColumn& column) {
    const auto number = number_in(cell);
    if (number == std::floor(number) && number >= 0 && number <= column.most) {
      return static_cast<std::int64_t>(number);
    }
    refuse_cell(cell, str("is ", number,
                          "; the training rows have the classes "
                          "0 to ",
                          column.most));
  }

  float weight_of(const CsvRow& row) const {
    const CsvCell at{file_, row.line, form_.roles.weight, row.cells[*weight_]};
    const auto weight = number_in(at);
    if (weight >= 0) return static_cast<float>(weight);
    refuse_cell(at, str("is ", weight, "; a weight is at least 0"));
  }

  CsvReader& file_;
  const CsvForm& form_;
  CsvWords* words_;                            // null: no column is a text
  std::vector<std::size_t> inputs_, targets_;  // places of columns
  std::optional<std::size_t> weight_;
};

}  // namespace

ColumnType CsvForm::input_type() const {
  return single ? roles.input[*single].type : ColumnType::number;
}

CsvForm form_of(CsvReader& train, const config::DataConfig& config) {
  CsvForm form{.roles = roles_of(train, config),
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

CsvTable read_table(CsvReader& file, const CsvForm& form,
                    const config::DataConfig& config) {
  std::optional<CsvWords> words;
  if (form.input_type() == ColumnType::text) {
    if (config.text.tokenizer.empty()) {
      throw Error(Fault::config, "data.tokenizer: is empty, but '",
                  form.roles.input[*form.single].name,
                  "' is a text; name the folder of a tokenizer");
    }
    words.emplace(config);
  }
  auto table = TableReader(file, form, words ? &*words : nullptr).read();
  if (table.rows > 0) return table;
  throw Error(Fault::io, "data: ", file.path(), " has no row below its header");
}

}  // namespace lockstep::data::detail
