#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/detail/mapped_file.h"

namespace lockstep::data::detail {

// A row, until the next one is read.
struct CsvRow {
  std::int64_t line = 0;  // where it begins
  std::span<const std::string> cells;
};

// Reads a file of comma-separated values as RFC 4180 has them: cells may be quoted, and
// hold separators, new lines and doubled quotes then. The first row names the columns.
// A file that ends in .tsv is separated by tabs, one whose header has semicolons only
// by these. Blank lines are skipped.
class CsvReader {
 public:
  // Throws Fault::io, naming the file.
  explicit CsvReader(const std::string& path);

  const std::string& path() const noexcept { return path_; }
  const std::vector<std::string>& columns() const noexcept { return columns_; }

  // Returns false at the end. Throws Fault::io, with file and line, for a row that has
  // more or fewer cells than there are columns, and for a quote that is not closed.
  bool next(CsvRow& row);
  void rewind();  // to the first row

 private:
  bool read_cells();
  void read_quoted(std::string& cell);
  [[noreturn]] void refuse(std::int64_t line, const std::string& what) const;

  std::string path_;
  MappedFile file_;
  char separator_ = ',';
  std::size_t at_ = 0, first_ = 0;  // bytes
  std::int64_t line_ = 1, first_line_ = 1;
  std::int64_t row_line_ = 1;
  std::size_t count_ = 0;           // cells of the row
  std::vector<std::string> cells_;  // `count_` of them, kept for their memory
  std::vector<std::string> columns_;
};

}  // namespace lockstep::data::detail
