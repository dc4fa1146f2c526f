#pragma once

#include <memory>

#include "lockstep/config/data.h"
#include "lockstep/data/detail/table_file.h"
#include "lockstep/data/sources.h"

namespace lockstep::data::detail {

struct TableFiles {
  std::unique_ptr<TableFile> train;
  std::unique_ptr<TableFile> eval;  // null: the part is the one to train on
};

// Makes samples of the rows of a part: numbers, categories, an image or a text by
// section `data`. What columns are is found in the training rows.
Opened open_table(const TableFiles& files, const config::DataConfig& config);

}  // namespace lockstep::data::detail
