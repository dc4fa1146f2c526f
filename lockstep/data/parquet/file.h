#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <arrow/record_batch.h>
#include <arrow/type.h>
#include <parquet/arrow/reader.h>

#include "lockstep/data/parquet/values.h"

// An open file, behind the functions of parquet_library.h. Its methods throw exceptions
// of the standard library, or Arrow's, which are such.
struct LockstepParquetFile {
 public:
  explicit LockstepParquetFile(const std::string& path);

  const std::vector<LockstepParquetColumn>& columns() const { return columns_; }
  std::int64_t width_of(std::int64_t column);
  void select(const LockstepParquetSelection& selection);
  LockstepParquetBatch next();

 private:
  std::shared_ptr<arrow::RecordBatchReader> batches_of(const std::vector<int>& columns);

  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::shared_ptr<arrow::Schema> schema_;
  std::vector<std::string> types_;
  std::vector<LockstepParquetColumn> columns_;
  std::shared_ptr<arrow::RecordBatchReader> batches_;
  std::vector<int> order_;  // of the selected columns in a batch
  std::vector<lockstep::data::detail::ParquetValues> values_;
  std::vector<LockstepParquetValues> views_;
  std::int64_t row_ = 0;
};
