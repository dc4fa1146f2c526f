#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/config/data.h"
#include "lockstep/data/detail/table_file.h"

namespace lockstep::data::detail {

// A column of a table, as the training rows show it.
struct TableColumn {
  std::string name;
  config::ColumnType type = config::ColumnType::number;
  bool is_whole = false;                                    // all numbers are
  double least = 0, most = 0;                               // of the numbers
  double mean = 0, deviation = 1;                           // of the numbers
  std::vector<std::string> categories;                      // of a category, sorted
  std::map<std::string, std::int64_t, std::less<>> places;  // of these

  // Returns the number of values that it is of an input: one for each category.
  std::int64_t width() const;
};

// What the columns of a table are for.
struct TableRoles {
  std::vector<TableColumn> input, target;  // of single values: TableFile::parts_of()
  std::string weight;                      // a column, or ""
  std::size_t rows = 0;
};

// Finds the roles by section `data`, and reads the training rows once for the rest.
// Throws Fault::config for columns that are not there or do not go together, Fault::io,
// with file and row, for cells that are not what their column is.
TableRoles roles_of(TableFile& train, const config::DataConfig& config);

// A cell and where it is.
struct TableCell {
  const TableFile& file;
  std::int64_t row;
  std::string_view column;
  const Cell& cell;
};

// Return a cell as a number, and the place of the category that it is. They throw
// Fault::io with file, row and column, as refuse_cell() does.
double number_in(const TableCell& cell);
std::int64_t category_in(const TableCell& cell, const TableColumn& column);
[[noreturn]] void refuse_cell(const TableCell& cell, const std::string& what);

}  // namespace lockstep::data::detail
