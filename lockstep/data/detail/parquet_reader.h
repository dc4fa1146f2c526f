#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/detail/parquet_library.h"
#include "lockstep/data/detail/table_file.h"

namespace lockstep::data::detail {

// Reads the rows of Parquet files, one file after another; the first names the columns.
// Loads liblockstep_parquet.so, and throws Fault::hardware where that is not there.
// Only the columns that are asked for are read.
class ParquetReader final : public TableFile {
 public:
  explicit ParquetReader(std::vector<std::string> paths);

  const std::string& path() const noexcept override { return paths_[at_file_]; }
  const std::vector<std::string>& columns() const noexcept override { return columns_; }
  std::vector<std::string> parts_of(const std::string& name) override;
  void begin(const std::vector<std::string>& columns) override;
  bool next(TableRow& row) override;
  std::string place_of(std::int64_t row) const override;

 private:
  struct Wanted {
    std::string name;
    bool is_list = false;
    std::int64_t width = 0;
  };
  // A column of single values: an item of one of those that are read.
  struct Part {
    std::size_t column;  // of wanted_
    std::int64_t item;
  };
  struct Close {
    void operator()(LockstepParquetFile* file) const;
  };

  void open_file(std::size_t index);
  void select();
  bool next_batch();
  std::int64_t place_in_file(const std::string& name) const;
  void check_type(const Wanted& wanted, const LockstepParquetColumn& column) const;
  Part add_part(const std::string& name);
  std::int64_t width_of(const std::string& name);
  void check(const char* failure) const;
  Cell cell_of(const Part& part) const;

  std::vector<std::string> paths_;
  std::vector<std::string> columns_;
  std::vector<bool> are_texts_;  // of columns_, in the first file
  std::size_t at_file_ = 0;
  std::unique_ptr<LockstepParquetFile, Close> file_;
  std::vector<Wanted> wanted_;
  std::vector<Part> parts_;
  LockstepParquetBatch batch_ = {};
  std::int64_t at_row_ = 0;     // of the batch
  std::int64_t first_row_ = 0;  // of the batch, in its file
  std::vector<Cell> cells_;
};

}  // namespace lockstep::data::detail
