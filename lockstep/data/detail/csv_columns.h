#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/config/data.h"
#include "lockstep/data/detail/csv_reader.h"

namespace lockstep::data::detail {

// A column of a CSV file, as the training rows show it.
struct CsvColumn {
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

// What the columns of a CSV file are for.
struct CsvRoles {
  std::vector<CsvColumn> input, target;
  std::string weight;  // a column, or ""
  std::size_t rows = 0;
};

// Finds the roles by section `data`, and reads the training rows once for the rest.
// Throws Fault::config for columns that are not there or do not go together, Fault::io,
// with file and line, for cells that are not what their column is.
CsvRoles roles_of(CsvReader& train, const config::DataConfig& config);

// Returns the place of a column in a file. Throws Fault::io if it is not there.
std::size_t column_in(const CsvReader& file, const std::string& name);

struct CsvCell {
  const CsvReader& file;
  std::int64_t line;
  std::string_view column;
  std::string_view text;
};

// Return a cell as a number, and the place of the category that it is. They throw
// Fault::io with file, line and column, as refuse_cell() does.
double number_in(const CsvCell& cell);
std::int64_t category_in(const CsvCell& cell, const CsvColumn& column);
[[noreturn]] void refuse_cell(const CsvCell& cell, const std::string& what);

}  // namespace lockstep::data::detail
