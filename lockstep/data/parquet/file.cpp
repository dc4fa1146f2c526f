#include "lockstep/data/parquet/file.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include <arrow/array.h>
#include <arrow/io/file.h>
#include <parquet/arrow/schema.h>
#include <parquet/properties.h>

namespace {

using namespace lockstep::data::detail;

// Rows that are decoded at once: enough to forget the cost of a batch, and little
// memory also where a row is an embedding.
constexpr std::int64_t kBatchRows = 4096;

void check(const arrow::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}

template <typename T>
T value_of(arrow::Result<T> result) {
  check(result.status());
  return std::move(result).ValueUnsafe();
}

// Parquet stores a list of numbers as one leaf below some levels.
void add_leaves(const parquet::arrow::SchemaField& field, std::vector<int>& leaves) {
  if (field.is_leaf()) leaves.push_back(field.column_index);
  for (const auto& child : field.children) add_leaves(child, leaves);
}

}  // namespace

LockstepParquetFile::LockstepParquetFile(const std::string& path) {
  parquet::arrow::FileReaderBuilder builder;
  parquet::ReaderProperties raw;
  raw.enable_buffered_stream();  // not a whole row group at once
  check(builder.Open(value_of(arrow::io::ReadableFile::Open(path)), raw));
  parquet::ArrowReaderProperties properties(/*use_threads=*/false);
  properties.set_batch_size(kBatchRows);
  properties.set_pre_buffer(false);
  builder.properties(properties);
  reader_ = value_of(builder.Build());
  check(reader_->GetSchema(&schema_));
  for (const auto& field : schema_->fields())
    types_.push_back(field->type()->ToString());
  for (std::size_t i = 0; i < types_.size(); ++i) {
    const auto& field = *schema_->field(static_cast<int>(i));
    columns_.push_back({.name = field.name().c_str(),
                        .type = types_[i].c_str(),
                        .kind = parquet_kind(*field.type()),
                        .is_list = is_parquet_list(*field.type()) ? 1 : 0});
  }
}

std::shared_ptr<arrow::RecordBatchReader> LockstepParquetFile::batches_of(
    const std::vector<int>& columns) {
  std::vector<int> leaves;
  for (const auto column : columns) {
    const auto& fields = reader_->manifest().schema_fields;
    add_leaves(fields.at(static_cast<std::size_t>(column)), leaves);
  }
  std::vector<int> groups(static_cast<std::size_t>(reader_->num_row_groups()));
  std::iota(groups.begin(), groups.end(), 0);
  return value_of(reader_->GetRecordBatchReader(groups, leaves));
}

std::int64_t LockstepParquetFile::width_of(std::int64_t column) {
  const auto& field = *schema_->field(static_cast<int>(column));
  if (!is_parquet_list(*field.type())) return 1;
  const auto batches = batches_of({static_cast<int>(column)});
  while (const auto batch = value_of(batches->Next())) {
    const auto length = first_list_length(*batch->column(0));
    if (length > 0) return length;
    if (length == 0) throw std::runtime_error("its lists are empty");
  }
  throw std::runtime_error("it has no list that is not null");
}

void LockstepParquetFile::select(const LockstepParquetSelection& selection) {
  std::vector<int> columns;
  values_.clear();
  for (std::int64_t i = 0; i < selection.count; ++i) {
    const auto column = static_cast<std::size_t>(selection.columns[i]);
    columns.push_back(static_cast<int>(column));
    values_.emplace_back(columns_.at(column).kind, selection.widths[i]);
  }
  // Batches have the columns in the order of the file, whatever was requested.
  auto sorted = columns;
  std::sort(sorted.begin(), sorted.end());
  order_.clear();
  for (const auto column : columns) {
    const auto at = std::lower_bound(sorted.begin(), sorted.end(), column);
    order_.push_back(static_cast<int>(at - sorted.begin()));
  }
  batches_ = batches_of(sorted);
  row_ = 0;
}

LockstepParquetBatch LockstepParquetFile::next() {
  std::shared_ptr<arrow::RecordBatch> batch;
  do {
    batch = value_of(batches_->Next());
  } while (batch && batch->num_rows() == 0);
  views_.clear();
  if (!batch) return {.rows = 0, .columns = nullptr};
  for (std::size_t i = 0; i < values_.size(); ++i) {
    try {
      values_[i].assign(*batch->column(order_[i]), row_);
    } catch (const std::exception& error) {
      const auto& name = batch->schema()->field(order_[i])->name();
      throw std::runtime_error("'" + name + "', " + error.what());
    }
    views_.push_back(values_[i].view());
  }
  row_ += batch->num_rows();
  return {.rows = batch->num_rows(), .columns = views_.data()};
}
