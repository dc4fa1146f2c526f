#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/detail/mapped_file.h"
#include "lockstep/data/detail/table_file.h"

namespace lockstep::data::detail {

// Reads a file of comma-separated values as RFC 4180 has them: cells may be quoted, and
// hold separators, new lines and doubled quotes then. The first row names the columns.
// A file that ends in .tsv is separated by tabs, one whose header has semicolons only
// by these. Blank lines are skipped.
class CsvReader final : public TableFile {
 public:
  // Throws Fault::io, naming the file.
  explicit CsvReader(const std::string& path);

  const std::string& path() const noexcept override { return path_; }
  const std::vector<std::string>& columns() const noexcept override { return columns_; }
  std::vector<std::string> parts_of(const std::string& name) override { return {name}; }
  void begin(const std::vector<std::string>& columns) override;

  // Throws Fault::io, with file and line, for a row that has more or fewer cells than
  // there are columns, and for a quote that is not closed.
  bool next(TableRow& row) override;
  std::string place_of(std::int64_t row) const override;

 private:
  bool read_cells();
  bool take_line_end();
  void read_quoted(std::string& cell);
  [[noreturn]] void refuse(std::int64_t line, const std::string& what) const;

  std::string path_;
  MappedFile file_;
  char separator_ = ',';
  std::size_t at_ = 0, first_ = 0;  // bytes
  std::int64_t line_ = 1, first_line_ = 1;
  std::int64_t row_line_ = 1;
  std::size_t count_ = 0;           // texts of the row
  std::vector<std::string> texts_;  // `count_` of them, kept for their memory
  std::vector<std::string> columns_;
  std::vector<std::size_t> places_;  // the columns that were asked for
  std::vector<Cell> cells_;          // their texts
};

}  // namespace lockstep::data::detail
