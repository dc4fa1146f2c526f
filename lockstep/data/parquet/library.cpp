// The functions of liblockstep_parquet.so: no exception leaves them.
#include <exception>
#include <string>

#include "lockstep/data/parquet/file.h"

namespace {

// Runs `work`; returns the text of what it threw, or null.
template <typename Work>
const char* text_of_failure(Work work) {
  thread_local std::string text;
  try {
    work();
    return nullptr;
  } catch (const std::exception& error) {
    text = error.what();
  } catch (...) {
    text = "an unknown failure";
  }
  return text.c_str();
}

}  // namespace

extern "C" {

const char* lockstep_parquet_open(const char* path, LockstepParquetFile** file) {
  return text_of_failure([&] { *file = new LockstepParquetFile(path); });
}

void lockstep_parquet_close(LockstepParquetFile* file) {
  delete file;
}

std::int64_t lockstep_parquet_columns(const LockstepParquetFile* file,
                                      const LockstepParquetColumn** columns) {
  *columns = file->columns().data();
  return static_cast<std::int64_t>(file->columns().size());
}

const char* lockstep_parquet_width(LockstepParquetFile* file, std::int64_t column,
                                   std::int64_t* width) {
  return text_of_failure([&] { *width = file->width_of(column); });
}

const char* lockstep_parquet_select(LockstepParquetFile* file,
                                    const LockstepParquetSelection* selection) {
  return text_of_failure([&] { file->select(*selection); });
}

const char* lockstep_parquet_next(LockstepParquetFile* file,
                                  LockstepParquetBatch* batch) {
  return text_of_failure([&] { *batch = file->next(); });
}

}  // extern "C"
