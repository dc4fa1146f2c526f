#include "lockstep/data/detail/table_columns.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/detail/image_reader.h"

namespace lockstep::data::detail {
namespace {

using config::ColumnType;

// Targets of whole numbers are classes as they are; of many that nobody has, they are
// rather numbers, or names.
constexpr double kMostClassesBesides = 100;
constexpr std::size_t kMostCategories = 100'000;
constexpr std::size_t kShown = 40;  // bytes of a cell, in an error

// What is seen of a column while the training rows are read.
struct Seen {
  bool counts_values = true;
  bool numbers = true, whole = true, images = true;
  double mean = 0, squares = 0;  // and those of the deviations, by Welford
  double least = 0, most = 0;
  double count = 0;              // of the numbers
  double words = 0;              // cells that are none
  std::string word, word_place;  // the first of these
  std::set<std::string, std::less<>> values;
  bool overflows = false;  // more values than categories may be

  void add(const Cell& cell) {
    if (counts_values) add_value(cell);
    const bool is_text = std::holds_alternative<std::string_view>(cell);
    images = images && is_text && is_image_name(text_of(cell));
    const auto number = number_of(cell);
    if (!number) {
      numbers = false;
      words += 1;
    }
    if (!number || !std::isfinite(*number)) return;  // number_in() refuses it
    whole = whole && *number == std::floor(*number);
    least = count == 0 ? *number : std::min(least, *number);
    most = count == 0 ? *number : std::max(most, *number);
    count += 1;
    const auto off = *number - mean;
    mean += off / count;
    squares += off * (*number - mean);
  }

  void add_value(const Cell& cell) {
    if (overflows) return;
    values.insert(text_of(cell));
    overflows = values.size() > kMostCategories;
  }
};

// Numbers in their order, else names in theirs.
std::vector<std::string> sorted_categories(const Seen& seen) {
  std::vector<std::string> names(seen.values.begin(), seen.values.end());
  if (!seen.numbers) return names;
  std::sort(names.begin(), names.end(), [](const auto& a, const auto& b) {
    const auto x = text::to_double(a), y = text::to_double(b);
    return std::pair(x.value_or(0), a) < std::pair(y.value_or(0), b);
  });
  return names;
}

ColumnType type_seen(const Seen& seen, bool is_target, bool has_tokenizer) {
  if (seen.numbers) return ColumnType::number;
  if (is_target) return ColumnType::category;
  if (seen.images) return ColumnType::image;
  return has_tokenizer ? ColumnType::text : ColumnType::category;
}

class Finder {
 public:
  Finder(TableFile& train, const config::DataConfig& config)
      : train_(train), config_(config) {}

  TableRoles find() {
    check_names();
    const auto target_names = targets();
    auto names = parts_of(inputs(target_names));
    num_inputs_ = names.size();
    for (auto& name : parts_of(target_names)) names.push_back(std::move(name));
    read(names);
    TableRoles roles{.weight = config_.table.weight, .rows = rows_};
    for (std::size_t i = 0; i < names.size(); ++i) {
      const bool is_target = i >= num_inputs_;
      auto& part = is_target ? roles.target : roles.input;
      part.push_back(column(names[i], seen_[i], is_target));
    }
    check_target(roles.target);
    return roles;
  }

 private:
  bool has(const std::string& name) const {
    const auto& columns = train_.columns();
    return std::find(columns.begin(), columns.end(), name) != columns.end();
  }

  void check(std::string_view knob, const std::string& name) const {
    if (has(name)) return;
    throw Error(Fault::config, knob, ": ", train_.path(), " has no column '", name,
                "'; it has ", text::join(train_.columns(), ", "),
                text::did_you_mean(name, train_.columns()));
  }

  void check_names() const {
    const auto& table = config_.table;
    for (const auto& name : table.input) check("data.input", name);
    for (const auto& name : table.target) check("data.target", name);
    for (const auto& [name, type] : table.columns) check("data.columns", name);
    if (!table.weight.empty()) check("data.weight", table.weight);
    check_once("data.input", table.input);
    check_once("data.target", table.target);
  }

  static void check_once(std::string_view knob, const std::vector<std::string>& names) {
    std::set<std::string_view> seen;
    for (const auto& name : names) {
      if (seen.insert(name).second) continue;
      throw Error(Fault::config, knob, ": '", name, "' is named twice; name it once");
    }
  }

  std::vector<std::string> targets() const {
    if (!config_.table.target.empty()) return config_.table.target;
    for (const auto* usual : {"target", "label", "class", "y"}) {
      if (has(usual)) return {usual};
    }
    throw Error(Fault::config, "data.target: none of the columns of ", train_.path(),
                " has a usual name; name one of ", text::join(train_.columns(), ", "));
  }

  std::vector<std::string> inputs(const std::vector<std::string>& targets) const {
    const auto is_target = [&](const std::string& name) {
      return std::find(targets.begin(), targets.end(), name) != targets.end();
    };
    const auto& weight = config_.table.weight;
    if (is_target(weight)) {
      throw Error(Fault::config, "data.weight: '", weight,
                  "' is the target, too; name another column, or none");
    }
    for (const auto& name : config_.table.input) {
      if (!is_target(name) && name != weight) continue;
      throw Error(Fault::config, "data.input: '", name,
                  "' is the target or the weight, too; a model that sees it learns "
                  "nothing else");
    }
    if (!config_.table.input.empty()) return config_.table.input;
    std::vector<std::string> names;
    for (const auto& name : train_.columns()) {
      if (!is_target(name) && name != weight) names.push_back(name);
    }
    if (!names.empty()) return names;
    throw Error(Fault::config, "data.input: ", train_.path(),
                " has no column beside the target");
  }

  // Returns the columns of single values that columns stand for.
  std::vector<std::string> parts_of(const std::vector<std::string>& names) const {
    std::vector<std::string> all;
    for (const auto& name : names) {
      auto parts = train_.parts_of(name);
      const auto given = config_.table.columns.find(name);
      const bool is_list = parts != std::vector{name};
      const bool is_asked =
          given != config_.table.columns.end() && given->second != ColumnType::number;
      if (is_list && is_asked) {
        throw Error(Fault::config, "data.columns: '", name, "' of ", train_.path(),
                    " has lists, which are numbers; leave it out of data.columns");
      }
      std::move(parts.begin(), parts.end(), std::back_inserter(all));
    }
    return all;
  }

  ColumnType type_of(const std::string& name, const Seen& seen, bool is_target) const {
    const auto given = config_.table.columns.find(name);
    if (given != config_.table.columns.end()) return given->second;
    return type_seen(seen, is_target, !config_.text.tokenizer.empty());
  }

  void read(const std::vector<std::string>& names) {
    read_cells(names);
    if (rows_ == 0) throw Error(Fault::io, "data: ", train_.path(), " has no rows");
    for (std::size_t i = 0; i < names.size(); ++i) check_mixed(names[i], seen_[i]);
    read_categories(names);
  }

  void read_cells(const std::vector<std::string>& names) {
    seen_.resize(names.size());
    const bool has_one_target = names.size() - num_inputs_ == 1;
    for (std::size_t i = 0; i < names.size(); ++i) {
      seen_[i].counts_values = i >= num_inputs_ && has_one_target;
    }
    TableRow row;
    train_.begin(names);
    while (train_.next(row)) {
      ++rows_;
      for (std::size_t i = 0; i < names.size(); ++i) {
        auto& seen = seen_[i];
        // A label of several may be missing; all else is wanted.
        if (!is_missing(row.cells[i])) {
          seen.add(row.cells[i]);
          if (seen.words == 1 && seen.word_place.empty()) {
            seen.word = text_of(row.cells[i]).substr(0, kShown);
            seen.word_place = train_.place_of(row.number);
          }
        } else if (i < num_inputs_ || has_one_target) {
          refuse_cell({train_, row.number, names[i], row.cells[i]},
                      "is empty; fill it in, or leave the row or the column out "
                      "(data.input, data.target)");
        }
      }
    }
  }

  // A few words among numbers are rather mistakes than names.
  void check_mixed(const std::string& name, const Seen& seen) const {
    if (seen.words == 0 || seen.count < seen.words) return;
    if (config_.table.columns.contains(name)) return;
    throw Error(Fault::io, "data: ", seen.word_place, ": '", name, "' is '", seen.word,
                "', not a number as in most rows; repair it, or set data.columns={",
                name, ": category}");
  }

  // The values of most columns are not kept: numbers have as many as there are rows.
  void read_categories(const std::vector<std::string>& names) {
    std::vector<std::size_t> wanted;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto type = type_of(names[i], seen_[i], i >= num_inputs_);
      if (type != ColumnType::category || seen_[i].counts_values) continue;
      wanted.push_back(i);
    }
    if (wanted.empty()) return;
    TableRow row;
    train_.begin(names);
    while (train_.next(row)) {
      for (const auto i : wanted) seen_[i].add_value(row.cells[i]);
    }
  }

  TableColumn column(const std::string& name, const Seen& seen, bool is_target) const {
    TableColumn column{.name = name,
                       .type = type_of(name, seen, is_target),
                       .is_whole = seen.numbers && seen.whole};
    column.least = seen.least;
    column.most = seen.most;
    column.mean = seen.mean;
    const auto deviation = seen.count > 0 ? std::sqrt(seen.squares / seen.count) : 0;
    column.deviation = deviation > 0 ? deviation : 1;
    if (column.type != ColumnType::category) return column;
    if (seen.overflows) {
      throw Error(Fault::config, "data.columns: '", name, "' of ", train_.path(),
                  " has more than ", kMostCategories,
                  " different texts, too many for categories; data.input names the "
                  "columns without it, or data.columns={",
                  name, ": text} with data.tokenizer makes tokens of it");
    }
    column.categories = sorted_categories(seen);
    for (const auto& category : column.categories) {
      column.places.emplace(category, static_cast<std::int64_t>(column.places.size()));
    }
    return column;
  }

  void check_target(const std::vector<TableColumn>& target) const {
    for (const auto& column : target) {
      if (column.type == ColumnType::image || column.type == ColumnType::text) {
        throw Error(Fault::config, "data.columns: '", column.name, "' is the target, ",
                    "which is a number or a category");
      }
      if (target.size() > 1 && column.type != ColumnType::number) {
        throw Error(
            Fault::config, "data.target: '", column.name, "' of ", train_.path(),
            " has cells that are not numbers; several targets are labels or numbers");
      }
    }
    const auto& only = target[0];
    const bool is_asked = config_.table.columns.contains(only.name);
    if (target.size() > 1 || only.type != ColumnType::number || is_asked) return;
    const auto different = static_cast<double>(seen_.back().values.size());
    const bool are_classes =
        only.least >= 0 && only.most + 1 <= different + kMostClassesBesides;
    if (!only.is_whole || are_classes) return;
    throw Error(Fault::config, "data.columns: '", only.name, "' of ", train_.path(),
                " has ", different, " different whole numbers from ", only.least,
                " to ", only.most, "; say what they are: {", only.name,
                ": category} for classes, {", only.name, ": number} for regression");
  }

  TableFile& train_;
  const config::DataConfig& config_;
  std::size_t num_inputs_ = 0;
  std::vector<Seen> seen_;  // inputs, then targets
  std::size_t rows_ = 0;
};

}  // namespace

std::int64_t TableColumn::width() const {
  return type == ColumnType::category ? static_cast<std::int64_t>(categories.size())
                                      : 1;
}

TableRoles roles_of(TableFile& train, const config::DataConfig& config) {
  return Finder(train, config).find();
}

double number_in(const TableCell& cell) {
  const auto number = number_of(cell.cell);
  if (number && std::abs(*number) <= std::numeric_limits<float>::max()) return *number;
  if (number && std::isfinite(*number)) {
    refuse_cell(cell, "is " + text_of(cell.cell).substr(0, kShown) +
                          ", beyond the range of a float32; scale the column");
  }
  if (is_missing(cell.cell)) refuse_cell(cell, "is empty, a number is wanted");
  refuse_cell(cell, "is '" + text_of(cell.cell).substr(0, kShown) + "', not a number");
}

std::int64_t category_in(const TableCell& cell, const TableColumn& column) {
  const auto name = text_of(cell.cell);
  const auto at = column.places.find(name);
  if (at != column.places.end()) return at->second;
  refuse_cell(cell, "is '" + name.substr(0, kShown) + "', which no training row has");
}

void refuse_cell(const TableCell& cell, const std::string& what) {
  throw Error(Fault::io, "data: ", cell.file.place_of(cell.row), ": '", cell.column,
              "' ", what);
}

}  // namespace lockstep::data::detail
