#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/config/data.h"
#include "lockstep/data/detail/csv_columns.h"
#include "lockstep/data/detail/csv_reader.h"

namespace lockstep::data::detail {

// The rows of a part.
struct CsvTable {
  std::vector<float> numbers;  // of the input, row after row
  std::vector<std::string> images;
  std::vector<std::vector<std::int64_t>> texts;  // their tokens
  std::vector<std::int64_t> classes;             // the target, where it is whole
  std::vector<float> targets;                    // else
  std::vector<float> weights;
  std::size_t rows = 0;
};

// How rows become samples, alike for both parts.
struct CsvForm {
  CsvRoles roles;
  std::int64_t width = 0;             // of the numbers
  std::optional<std::size_t> single;  // of roles.input: the image or the text
  bool has_classes = false;
  bool standardizes = true;

  config::ColumnType input_type() const;
};

// Finds the roles of columns (csv_columns.h) and what samples are made of them.
CsvForm form_of(CsvReader& train, const config::DataConfig& config);

// Reads the rows of a part. Throws Fault::io, with file and line, for cells that are
// not what the training rows say.
CsvTable read_table(CsvReader& file, const CsvForm& form,
                    const config::DataConfig& config);

}  // namespace lockstep::data::detail
