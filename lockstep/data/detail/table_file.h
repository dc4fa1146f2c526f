#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace lockstep::data::detail {

// A cell: nothing, a text, or what a file whose columns have types says by itself. A
// text lives until the next row is read.
using Cell = std::variant<std::monostate, std::string_view, std::int64_t, double>;

// Return whether a cell has nothing in it, blanks apart; the number that it is, or that
// its text says; and its text without blanks around it.
bool is_missing(const Cell& cell);
std::optional<double> number_of(const Cell& cell);
std::string text_of(const Cell& cell);

// A row, until the next one is read.
struct TableRow {
  std::int64_t number = 0;  // for TableFile::place_of()
  std::span<const Cell> cells;
};

// Rows of a file, or of several, whose columns have names. All errors are Fault::io and
// name the file.
class TableFile {
 public:
  virtual ~TableFile() = default;

  // The file that is being read.
  virtual const std::string& path() const noexcept = 0;
  virtual const std::vector<std::string>& columns() const noexcept = 0;

  // Returns the columns of single values that one stands for: itself, or of lists of a
  // length "name[0]", "name[1]" and so on. `name` is one of columns().
  virtual std::vector<std::string> parts_of(const std::string& name) = 0;

  // Goes to the first row. Those of next() have cells of these columns, which are parts
  // of others (parts_of()), in this order.
  virtual void begin(const std::vector<std::string>& columns) = 0;

  // Returns false at the end.
  virtual bool next(TableRow& row) = 0;

  // Returns what an error calls a row of the file that is being read.
  virtual std::string place_of(std::int64_t row) const = 0;
};

// Returns the place of a name in columns(). Throws Fault::io if it is not there.
std::size_t column_in(const TableFile& file, const std::string& name);

}  // namespace lockstep::data::detail
