#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/config/data.h"
#include "lockstep/data/detail/table_columns.h"
#include "lockstep/data/detail/table_file.h"

namespace lockstep::data::detail {

// The rows of a part.
struct Table {
  std::vector<float> numbers;  // of the input, row after row; places of categories
  std::vector<std::string> images;
  std::vector<std::vector<std::int64_t>> texts;  // their tokens
  std::vector<std::int64_t> classes;             // the target, where it is whole
  std::vector<float> targets;                    // else
  std::vector<float> weights;
  std::size_t rows = 0;
};

// How rows become samples, alike for both parts.
struct TableForm {
  TableRoles roles;
  std::int64_t width = 0;             // of the numbers, one for each category
  std::optional<std::size_t> single;  // of roles.input: the image or the text
  bool has_classes = false;
  bool standardizes = true;

  config::ColumnType input_type() const;
};

// Finds the roles of columns (table_columns.h) and what samples are made of them.
TableForm form_of(TableFile& train, const config::DataConfig& config);

// Reads the rows of a part. Throws Fault::io, with file and row, for cells that are
// not what the training rows say.
Table read_table(TableFile& file, const TableForm& form,
                 const config::DataConfig& config);

}  // namespace lockstep::data::detail
