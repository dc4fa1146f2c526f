#pragma once

#include <cstdint>

// What liblockstep_parquet.so offers, the only user of Apache Arrow. It is loaded when
// the first Parquet file is met (library.h): no other run pays for Arrow, and a machine
// without it has all else. Plain C, so that nothing of Arrow is seen.
//
// A function that returns a text failed if there is one: what was wrong, without the
// file's name, until the next call on the thread. Rows are counted from 0.
extern "C" {

struct LockstepParquetFile;

enum LockstepParquetKind : std::int32_t {
  kLockstepParquetOther,  // can not be read
  kLockstepParquetInteger,
  kLockstepParquetNumber,
  kLockstepParquetText,
};

struct LockstepParquetColumn {
  const char* name;
  const char* type;  // as Arrow calls it, for messages
  LockstepParquetKind kind;
  std::int32_t is_list;  // of integers or numbers
};

// The values of a column in a batch: of a list, one row's after another's.
struct LockstepParquetValues {
  std::int64_t width;  // values of a row
  const std::uint8_t* is_missing;
  const std::int64_t* integers;  // null: not of this kind
  const double* numbers;         // null: not of this kind
  const char* text;              // of value i: from ends[i - 1] (or 0) to ends[i]
  const std::int64_t* ends;      // null: not of this kind
};

struct LockstepParquetBatch {
  std::int64_t rows;                     // 0: the file has ended
  const LockstepParquetValues* columns;  // those selected, until the next call
};

const char* lockstep_parquet_open(const char* path, LockstepParquetFile** file);
void lockstep_parquet_close(LockstepParquetFile* file);

// Returns the number of columns.
std::int64_t lockstep_parquet_columns(const LockstepParquetFile* file,
                                      const LockstepParquetColumn** columns);

// Finds the length of the lists of a column, by the first that is not missing; of
// columns of single values it is 1.
const char* lockstep_parquet_width(LockstepParquetFile* file, std::int64_t column,
                                   std::int64_t* width);

struct LockstepParquetSelection {
  const std::int64_t* columns;
  const std::int64_t* widths;  // lists of another length are refused
  std::int64_t count;
};

// Goes to the first row; batches have these columns then.
const char* lockstep_parquet_select(LockstepParquetFile* file,
                                    const LockstepParquetSelection* selection);
const char* lockstep_parquet_next(LockstepParquetFile* file,
                                  LockstepParquetBatch* batch);

}  // extern "C"
