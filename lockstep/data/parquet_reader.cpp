#include "lockstep/data/detail/parquet_reader.h"

#include <algorithm>
#include <span>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/detail/library.h"

namespace lockstep::data::detail {
namespace {

struct Functions {
  Library library{"liblockstep_parquet.so",
                  "reading Parquet needs this library beside lockstep_worker, and "
                  "libarrow and libparquet: run scripts/setup.sh (without "
                  "LOCKSTEP_ARROW=off), or write the table as CSV (data.name=csv)"};
  decltype(&::lockstep_parquet_open) open = nullptr;
  decltype(&::lockstep_parquet_close) close = nullptr;
  decltype(&::lockstep_parquet_columns) columns = nullptr;
  decltype(&::lockstep_parquet_width) width = nullptr;
  decltype(&::lockstep_parquet_select) select = nullptr;
  decltype(&::lockstep_parquet_next) next = nullptr;

  Functions() {
    library.find(open, "lockstep_parquet_open");
    library.find(close, "lockstep_parquet_close");
    library.find(columns, "lockstep_parquet_columns");
    library.find(width, "lockstep_parquet_width");
    library.find(select, "lockstep_parquet_select");
    library.find(next, "lockstep_parquet_next");
  }
};

// Loads once a process; the next caller repeats a failed try.
const Functions& functions() {
  static const Functions kFunctions;
  return kFunctions;
}

std::span<const LockstepParquetColumn> columns_of(const LockstepParquetFile* file) {
  const LockstepParquetColumn* columns = nullptr;
  const auto count = functions().columns(file, &columns);
  return {columns, static_cast<std::size_t>(count)};
}

}  // namespace

void ParquetReader::Close::operator()(LockstepParquetFile* file) const {
  functions().close(file);
}

ParquetReader::ParquetReader(std::vector<std::string> paths)
    : paths_(std::move(paths)) {
  open_file(0);
  for (const auto& column : columns_of(file_.get())) {
    if (std::find(columns_.begin(), columns_.end(), column.name) != columns_.end()) {
      throw Error(Fault::io, "data: ", path(), ": there are two columns '", column.name,
                  "'; rename one");
    }
    columns_.emplace_back(column.name);
    are_texts_.push_back(column.kind == kLockstepParquetText);
  }
}

void ParquetReader::open_file(std::size_t index) {
  at_file_ = index;
  file_.reset();
  LockstepParquetFile* file = nullptr;
  check(functions().open(path().c_str(), &file));
  file_.reset(file);
}

void ParquetReader::check(const char* failure) const {
  if (failure == nullptr) return;
  throw Error(Fault::io, "data: ", path(), ": ", failure);
}

std::int64_t ParquetReader::place_in_file(const std::string& name) const {
  const auto columns = columns_of(file_.get());
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].name != name) continue;
    if (columns[i].kind != kLockstepParquetOther) return static_cast<std::int64_t>(i);
    throw Error(Fault::io, "data: ", path(), ": '", name, "' is of type ",
                columns[i].type,
                ", not numbers, texts or lists of numbers; cast it where the file is "
                "written, or name the columns without it by data.input");
  }
  throw Error(Fault::io, "data: ", path(), " has no column '", name,
              "', which the training rows have");
}

// Returns the length of the lists of a column, by the first file that has one: Spark
// writes parts without rows.
std::int64_t ParquetReader::width_of(const std::string& name) {
  std::string failure;
  for (std::size_t i = 0; i < paths_.size(); ++i) {
    if (at_file_ != i) open_file(i);
    std::int64_t width = 0;
    const char* why = functions().width(file_.get(), place_in_file(name), &width);
    if (why == nullptr) return width;
    if (failure.empty()) failure = str("data: ", path(), ": '", name, "': ", why);
  }
  throw Error(Fault::io, failure);
}

std::vector<std::string> ParquetReader::parts_of(const std::string& name) {
  if (at_file_ != 0) open_file(0);
  const auto place = place_in_file(name);
  if (columns_of(file_.get())[static_cast<std::size_t>(place)].is_list == 0) {
    return {name};
  }
  const auto width = width_of(name);
  constexpr std::int64_t kWidest = 1 << 20;
  if (width > kWidest) {
    throw Error(Fault::io, "data: ", path(), ": the lists of '", name, "' have ", width,
                " values; at most ", kWidest, " are taken");
  }
  std::vector<std::string> parts;
  for (std::int64_t i = 0; i < width; ++i) parts.push_back(str(name, "[", i, "]"));
  return parts;
}

// Finds the column that a part is of: one of its name, else "a[3]" is of the lists "a".
ParquetReader::Part ParquetReader::add_part(const std::string& part) {
  Wanted column{.name = part, .width = 1};
  std::int64_t item = 0;
  const bool is_column =
      std::find(columns_.begin(), columns_.end(), part) != columns_.end();
  if (!is_column && part.ends_with(']')) {
    const auto bracket = part.rfind('[');
    const auto digits = part.substr(bracket + 1, part.size() - bracket - 2);
    item = text::to_integer(digits).value_or(0);
    column = {.name = part.substr(0, bracket), .is_list = true, .width = item + 1};
  }
  // From the back: the items of a list come one after another.
  for (auto i = wanted_.size(); i-- > 0;) {
    if (wanted_[i].name != column.name) continue;
    wanted_[i].width = std::max(wanted_[i].width, column.width);
    return {i, item};
  }
  wanted_.push_back(std::move(column));
  return {wanted_.size() - 1, item};
}

void ParquetReader::begin(const std::vector<std::string>& columns) {
  wanted_.clear();
  parts_.clear();
  for (const auto& name : columns) parts_.push_back(add_part(name));
  cells_.resize(parts_.size());
  if (at_file_ != 0) open_file(0);
  select();
}

void ParquetReader::check_type(const Wanted& wanted,
                               const LockstepParquetColumn& column) const {
  const auto fail = [&](const std::string& what) {
    throw Error(Fault::io, "data: ", path(), ": '", wanted.name, "' is of type ",
                column.type, ", ", what);
  };
  if (column.is_list != 0 && !wanted.is_list) fail("a single value in a row is wanted");
  if (column.is_list == 0 && wanted.is_list) fail("but lists in the training rows");
  const bool was_text = are_texts_[column_in(*this, wanted.name)];
  if (was_text == (column.kind == kLockstepParquetText)) return;
  fail(str("but ", was_text ? "a text" : "a number", " in ", paths_[0]));
}

void ParquetReader::select() {
  std::vector<std::int64_t> places, widths;
  for (const auto& wanted : wanted_) {
    places.push_back(place_in_file(wanted.name));
    widths.push_back(wanted.width);
    check_type(wanted,
               columns_of(file_.get())[static_cast<std::size_t>(places.back())]);
  }
  const LockstepParquetSelection selection{places.data(), widths.data(),
                                           static_cast<std::int64_t>(places.size())};
  check(functions().select(file_.get(), &selection));
  batch_ = {};
  at_row_ = first_row_ = 0;
}

// Goes to the next batch, of this file or of the next one.
bool ParquetReader::next_batch() {
  while (true) {
    first_row_ += batch_.rows;
    at_row_ = 0;
    check(functions().next(file_.get(), &batch_));
    if (batch_.rows > 0) return true;
    if (at_file_ + 1 == paths_.size()) return false;
    open_file(at_file_ + 1);
    select();
  }
}

bool ParquetReader::next(TableRow& row) {
  if (at_row_ >= batch_.rows && !next_batch()) return false;
  for (std::size_t i = 0; i < parts_.size(); ++i) cells_[i] = cell_of(parts_[i]);
  row = {first_row_ + at_row_, cells_};
  ++at_row_;
  return true;
}

Cell ParquetReader::cell_of(const Part& part) const {
  const auto& values = batch_.columns[part.column];
  const auto at = at_row_ * values.width + part.item;
  if (values.is_missing[at] != 0) return {};
  if (values.integers != nullptr) return values.integers[at];
  if (values.numbers != nullptr) return values.numbers[at];
  const auto first = at == 0 ? 0 : values.ends[at - 1];
  return std::string_view(values.text + first,
                          static_cast<std::size_t>(values.ends[at] - first));
}

std::string ParquetReader::place_of(std::int64_t row) const {
  return str(path(), ", row ", row);
}

}  // namespace lockstep::data::detail
