#include "lockstep/data/parquet/values.h"

#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <type_traits>

#include <arrow/array.h>
#include <arrow/type.h>
#include <arrow/util/float16.h>

#include "lockstep/base/str.h"

namespace lockstep::data::detail {
namespace {

using arrow::Type;

const arrow::DataType& item_type(const arrow::DataType& type) {
  return *type.field(0)->type();
}

struct ListRange {
  std::int64_t begin = 0, length = 0;
};

ListRange range_of(const arrow::Array& array, std::int64_t row) {
  switch (array.type_id()) {
    case Type::FIXED_SIZE_LIST: {
      const auto& lists = static_cast<const arrow::FixedSizeListArray&>(array);
      return {lists.value_offset(row), lists.value_length(row)};
    }
    case Type::LARGE_LIST: {
      const auto& lists = static_cast<const arrow::LargeListArray&>(array);
      return {lists.value_offset(row), lists.value_length(row)};
    }
    default: {
      const auto& lists = static_cast<const arrow::ListArray&>(array);
      return {lists.value_offset(row), lists.value_length(row)};
    }
  }
}

std::shared_ptr<arrow::Array> items_of(const arrow::Array& array) {
  switch (array.type_id()) {
    case Type::FIXED_SIZE_LIST:
      return static_cast<const arrow::FixedSizeListArray&>(array).values();
    case Type::LARGE_LIST:
      return static_cast<const arrow::LargeListArray&>(array).values();
    default:
      return static_cast<const arrow::ListArray&>(array).values();
  }
}

LockstepParquetKind scalar_kind(const arrow::DataType& type) {
  switch (type.id()) {
    case Type::BOOL:
    case Type::INT8:
    case Type::INT16:
    case Type::INT32:
    case Type::INT64:
    case Type::UINT8:
    case Type::UINT16:
    case Type::UINT32:
    case Type::UINT64:
      return kLockstepParquetInteger;
    case Type::HALF_FLOAT:
    case Type::FLOAT:
    case Type::DOUBLE:
      return kLockstepParquetNumber;
    case Type::STRING:
    case Type::LARGE_STRING:
    case Type::STRING_VIEW:
    case Type::DECIMAL128:
    case Type::DECIMAL256:
    case Type::NA:
      return kLockstepParquetText;
    default:
      return kLockstepParquetOther;
  }
}

}  // namespace

bool is_parquet_list(const arrow::DataType& type) {
  return type.id() == Type::LIST || type.id() == Type::LARGE_LIST ||
         type.id() == Type::FIXED_SIZE_LIST;
}

LockstepParquetKind parquet_kind(const arrow::DataType& type) {
  if (type.id() == Type::DICTIONARY) {
    return scalar_kind(*static_cast<const arrow::DictionaryType&>(type).value_type());
  }
  if (!is_parquet_list(type)) return scalar_kind(type);
  const auto kind = scalar_kind(item_type(type));
  return kind == kLockstepParquetText ? kLockstepParquetOther : kind;
}

std::int64_t first_list_length(const arrow::Array& array) {
  for (std::int64_t row = 0; row < array.length(); ++row) {
    if (array.IsValid(row)) return range_of(array, row).length;
  }
  return -1;
}

void ParquetValues::assign(const arrow::Array& array, std::int64_t first_row) {
  first_row_ = first_row;
  missing_.clear();
  integers_.clear();
  numbers_.clear();
  text_.clear();
  ends_.clear();
  if (is_parquet_list(*array.type())) {
    append_lists(array);
  } else {
    append(array);
  }
}

LockstepParquetValues ParquetValues::view() const {
  return {.width = width_,
          .is_missing = missing_.data(),
          .integers = kind_ == kLockstepParquetInteger ? integers_.data() : nullptr,
          .numbers = kind_ == kLockstepParquetNumber ? numbers_.data() : nullptr,
          .text = text_.data(),
          .ends = kind_ == kLockstepParquetText ? ends_.data() : nullptr};
}

void ParquetValues::append_lists(const arrow::Array& array) {
  const auto items = items_of(array);
  ListRange run;  // lists that stand one after another are taken at once
  const auto end_run = [&] {
    if (run.length > 0) append(*items->Slice(run.begin, run.length));
    run = {};
  };
  for (std::int64_t row = 0; row < array.length(); ++row) {
    if (array.IsNull(row)) {
      end_run();
      append_missing(width_);
      continue;
    }
    const auto range = range_of(array, row);
    if (range.length != width_) {
      throw std::runtime_error(str("row ", first_row_ + row, ": a list has ",
                                   range.length, " values, not ", width_,
                                   " as the first one; all have to be of one length"));
    }
    if (run.length > 0 && run.begin + run.length != range.begin) end_run();
    if (run.length == 0) run.begin = range.begin;
    run.length += range.length;
  }
  end_run();
}

void ParquetValues::append(const arrow::Array& array) {
  const auto itself = [](auto value) { return static_cast<double>(value); };
  const auto half = [](std::uint16_t bits) {
    return arrow::util::Float16::FromBits(bits).ToDouble();
  };
  switch (array.type_id()) {
    case Type::BOOL:
      return append_integers<arrow::BooleanArray>(array);
    case Type::INT8:
      return append_integers<arrow::Int8Array>(array);
    case Type::INT16:
      return append_integers<arrow::Int16Array>(array);
    case Type::INT32:
      return append_integers<arrow::Int32Array>(array);
    case Type::INT64:
      return append_integers<arrow::Int64Array>(array);
    case Type::UINT8:
      return append_integers<arrow::UInt8Array>(array);
    case Type::UINT16:
      return append_integers<arrow::UInt16Array>(array);
    case Type::UINT32:
      return append_integers<arrow::UInt32Array>(array);
    case Type::UINT64:
      return append_integers<arrow::UInt64Array>(array);
    case Type::HALF_FLOAT:
      return append_numbers<arrow::HalfFloatArray>(array, half);
    case Type::FLOAT:
      return append_numbers<arrow::FloatArray>(array, itself);
    case Type::DOUBLE:
      return append_numbers<arrow::DoubleArray>(array, itself);
    case Type::STRING:
      return append_texts<arrow::StringArray>(array);
    case Type::LARGE_STRING:
      return append_texts<arrow::LargeStringArray>(array);
    case Type::STRING_VIEW:
      return append_texts<arrow::StringViewArray>(array);
    case Type::DECIMAL128:
      return append_decimals<arrow::Decimal128Array>(array);
    case Type::DECIMAL256:
      return append_decimals<arrow::Decimal256Array>(array);
    case Type::DICTIONARY:
      return append_dictionary(array);
    default:
      return append_missing(array.length());  // Type::NA: parquet_kind() has no others
  }
}

template <typename Array>
void ParquetValues::append_integers(const arrow::Array& array) {
  const auto& values = static_cast<const Array&>(array);
  for (std::int64_t i = 0; i < values.length(); ++i) {
    const bool is_valid = values.IsValid(i);
    const auto value = is_valid ? values.Value(i) : 0;
    if constexpr (std::is_same_v<Array, arrow::UInt64Array>) {
      if (value >
          static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        throw std::runtime_error(str(
            "row ", first_row_ + static_cast<std::int64_t>(missing_.size()) / width_,
            ": ", value, " is more than 2^63 - 1"));
      }
    }
    missing_.push_back(is_valid ? 0 : 1);
    integers_.push_back(static_cast<std::int64_t>(value));
  }
}

// NaN is how pandas and numpy say that there is nothing.
template <typename Array, typename Value>
void ParquetValues::append_numbers(const arrow::Array& array, Value value_at) {
  const auto& values = static_cast<const Array&>(array);
  for (std::int64_t i = 0; i < values.length(); ++i) {
    const auto value = values.IsValid(i) ? value_at(values.Value(i)) : std::nan("");
    missing_.push_back(std::isnan(value) ? 1 : 0);
    numbers_.push_back(value);
  }
}

template <typename Array>
void ParquetValues::append_texts(const arrow::Array& array) {
  const auto& values = static_cast<const Array&>(array);
  for (std::int64_t i = 0; i < values.length(); ++i) {
    missing_.push_back(values.IsValid(i) ? 0 : 1);
    append_text(values.IsValid(i) ? values.GetView(i) : std::string_view());
  }
}

template <typename Array>
void ParquetValues::append_decimals(const arrow::Array& array) {
  const auto& values = static_cast<const Array&>(array);
  for (std::int64_t i = 0; i < values.length(); ++i) {
    missing_.push_back(values.IsValid(i) ? 0 : 1);
    append_text(values.IsValid(i) ? values.FormatValue(i) : std::string());
  }
}

void ParquetValues::append_dictionary(const arrow::Array& array) {
  const auto& values = static_cast<const arrow::DictionaryArray&>(array);
  ParquetValues words(kind_, 1);
  words.assign(*values.dictionary(), first_row_);
  for (std::int64_t i = 0; i < values.length(); ++i) {
    const auto at = values.IsValid(i) ? values.GetValueIndex(i) : -1;
    if (at < 0 || at >= values.dictionary()->length()) {
      append_missing(1);
    } else {
      append_value(words, at);
    }
  }
}

void ParquetValues::append_missing(std::int64_t count) {
  missing_.insert(missing_.end(), static_cast<std::size_t>(count), 1);
  if (kind_ == kLockstepParquetInteger) integers_.resize(missing_.size());
  if (kind_ == kLockstepParquetNumber) numbers_.resize(missing_.size());
  if (kind_ != kLockstepParquetText) return;
  ends_.resize(missing_.size(), static_cast<std::int64_t>(text_.size()));
}

void ParquetValues::append_text(std::string_view text) {
  text_ += text;
  ends_.push_back(static_cast<std::int64_t>(text_.size()));
}

void ParquetValues::append_value(const ParquetValues& from, std::int64_t at) {
  const auto i = static_cast<std::size_t>(at);
  missing_.push_back(from.missing_[i]);
  if (kind_ == kLockstepParquetInteger) integers_.push_back(from.integers_[i]);
  if (kind_ == kLockstepParquetNumber) numbers_.push_back(from.numbers_[i]);
  if (kind_ != kLockstepParquetText) return;
  const auto begin = i == 0 ? 0 : from.ends_[i - 1];
  append_text(std::string_view(from.text_)
                  .substr(static_cast<std::size_t>(begin),
                          static_cast<std::size_t>(from.ends_[i] - begin)));
}

}  // namespace lockstep::data::detail
