#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <arrow/type_fwd.h>

#include "lockstep/data/detail/parquet_library.h"

namespace lockstep::data::detail {

// Returns what a column's values are; a list is what its items are.
LockstepParquetKind parquet_kind(const arrow::DataType& type);
bool is_parquet_list(const arrow::DataType& type);

// The values of a column, as the other side of the seam has them.
class ParquetValues {
 public:
  ParquetValues(LockstepParquetKind kind, std::int64_t width)
      : kind_(kind), width_(width) {}

  // Replaces the values by those of an array whose first row is `first_row` of the
  // file. Throws std::runtime_error with the row for one that can not be taken.
  void assign(const arrow::Array& array, std::int64_t first_row);
  LockstepParquetValues view() const;

 private:
  void append(const arrow::Array& array);
  void append_lists(const arrow::Array& array);
  void append_dictionary(const arrow::Array& array);
  template <typename Array>
  void append_integers(const arrow::Array& array);
  template <typename Array, typename Value>
  void append_numbers(const arrow::Array& array, Value value_at);
  template <typename Array>
  void append_texts(const arrow::Array& array);
  template <typename Array>
  void append_decimals(const arrow::Array& array);
  void append_missing(std::int64_t count);
  void append_text(std::string_view text);
  void append_value(const ParquetValues& from, std::int64_t at);

  LockstepParquetKind kind_;
  std::int64_t width_;
  std::int64_t first_row_ = 0;
  std::vector<std::uint8_t> missing_;
  std::vector<std::int64_t> integers_;
  std::vector<double> numbers_;
  std::string text_;
  std::vector<std::int64_t> ends_;
};

// Returns the length of the first list that is not null, or -1.
std::int64_t first_list_length(const arrow::Array& array);

}  // namespace lockstep::data::detail
