#include "lockstep/data/detail/table.h"

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
class TableWords {
 public:
  explicit TableWords(const config::DataConfig& config)
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
class RowReader {
 public:
  RowReader(TableFile& file, const TableForm& form, TableWords* words)
      : file_(file), form_(form), words_(words) {
    for (const auto& column : form.roles.input) names_.push_back(column.name);
    for (const auto& column : form.roles.target) names_.push_back(column.name);
    if (has_weight()) names_.push_back(form.roles.weight);
  }

  Table read() {
    Table table;
    TableRow row;
    file_.begin(names_);
    while (file_.next(row)) {
      read_input(row, table);
      read_target(row, table);
      if (has_weight()) table.weights.push_back(weight_of(row));
      ++table.rows;
    }
    return table;
  }

 private:
  bool has_weight() const { return !form_.roles.weight.empty(); }

  TableCell cell(const TableRow& row, std::size_t place) const {
    return {file_, row.number, names_[place], row.cells[place]};
  }

  void read_input(const TableRow& row, Table& table) {
    for (std::size_t i = 0; i < form_.roles.input.size(); ++i) {
      const auto& column = form_.roles.input[i];
      const auto at = cell(row, i);
      switch (column.type) {
        case ColumnType::number:
          table.numbers.push_back(standardized(number_in(at), column));
          break;
        case ColumnType::category:
          table.numbers.push_back(static_cast<float>(category_in(at, column)));
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

  float standardized(double number, const TableColumn& column) const {
    if (!form_.standardizes) return static_cast<float>(number);
    return static_cast<float>((number - column.mean) / column.deviation);
  }

  // Images lie below the file's folder: it may have come from somebody else.
  std::string image_in(const TableCell& cell) const {
    const Path name(text_of(cell.cell));
    const auto plain = name.lexically_normal();
    const bool leaves = plain.is_absolute() || plain.empty() || *plain.begin() == "..";
    if (leaves) {
      refuse_cell(cell, "is '" + name.string() +
                            "'; images are named from the folder of the file "
                            "on, in which they lie");
    }
    return (Path(file_.path()).parent_path() / plain).string();
  }

  std::vector<std::int64_t> tokens_in(const TableCell& cell) {
    try {
      const auto* words = std::get_if<std::string_view>(&cell.cell);
      auto tokens = words_->encode(words != nullptr ? *words : text_of(cell.cell));
      if (!tokens.empty()) return tokens;
    } catch (const Error& error) {
      refuse_cell(cell, str("cannot be made tokens: ", error.what()));
    }
    refuse_cell(cell, "has no text");
  }

  void read_target(const TableRow& row, Table& table) const {
    const auto& targets = form_.roles.target;
    for (std::size_t i = 0; i < targets.size(); ++i) {
      const auto& column = targets[i];
      const auto at = cell(row, form_.roles.input.size() + i);
      if (!form_.has_classes) {
        const bool has_none = targets.size() > 1 && is_missing(at.cell);
        table.targets.push_back(has_none ? std::numeric_limits<float>::quiet_NaN()
                                         : static_cast<float>(number_in(at)));
      } else if (column.type == ColumnType::category) {
        table.classes.push_back(category_in(at, column));
      } else {
        table.classes.push_back(class_in(at, column));
      }
    }
  }

  static std::int64_t class_in(const TableCell& cell, const TableColumn& column) {
    const auto number = number_in(cell);
    if (number == std::floor(number) && number >= 0 && number <= column.most) {
      return static_cast<std::int64_t>(number);
    }
    refuse_cell(cell, str("is ", number,
                          "; the training rows have the classes "
                          "0 to ",
                          column.most));
  }

  float weight_of(const TableRow& row) const {
    const auto at = cell(row, names_.size() - 1);
    const auto weight = number_in(at);
    if (weight >= 0) return static_cast<float>(weight);
    refuse_cell(at, str("is ", weight, "; a weight is at least 0"));
  }

  TableFile& file_;
  const TableForm& form_;
  TableWords* words_;               // null: no column is a text
  std::vector<std::string> names_;  // of the cells: inputs, targets, the weight
};

}  // namespace

ColumnType TableForm::input_type() const {
  return single ? roles.input[*single].type : ColumnType::number;
}

TableForm form_of(TableFile& train, const config::DataConfig& config) {
  TableForm form{.roles = roles_of(train, config),
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

Table read_table(TableFile& file, const TableForm& form,
                 const config::DataConfig& config) {
  std::optional<TableWords> words;
  if (form.input_type() == ColumnType::text) {
    if (config.text.tokenizer.empty()) {
      throw Error(Fault::config, "data.tokenizer: is empty, but '",
                  form.roles.input[*form.single].name,
                  "' is a text; name the folder of a tokenizer");
    }
    words.emplace(config);
  }
  auto table = RowReader(file, form, words ? &*words : nullptr).read();
  if (table.rows > 0) return table;
  throw Error(Fault::io, "data: ", file.path(), " has no rows");
}

}  // namespace lockstep::data::detail
