#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/config/enums.h"
#include "lockstep/config/field.h"

namespace lockstep::config {

// What the cells of a column are.
enum class ColumnType { number, category, image, text };

constexpr std::array<std::string_view, 4> names_of(ColumnType) {
  return {"number", "category", "image", "text"};
}

// Knobs of data sets whose parts have names: csv, parquet, arrays and webdataset.
struct TableData {
  std::vector<std::string> input;
  std::vector<std::string> target;
  std::string weight;
  std::map<std::string, ColumnType> columns;
  bool standardize = true;
};

template <typename Visitor>
void describe_table(TableData& c, Visitor& v) {
  v.field("input", c.input,
          {.help = "csv and parquet: the columns of the input; empty: all others. "
                   "arrays: the array; empty: input, x or images. webdataset: the "
                   "ending of its files; empty: any image.",
           .needs = "data.name=csv|parquet|arrays|webdataset"});
  v.field("target", c.target,
          {.help = "csv and parquet: the columns of the target; arrays: the array; "
                   "empty: target, "
                   "label or y. webdataset: the ending of its files, or json.KEY; "
                   "empty: cls.",
           .needs = "data.name=csv|parquet|arrays|webdataset"});
  v.field("weight", c.weight,
          {.help = "csv, parquet and arrays: the column or array with the weight of a "
                   "sample in the loss; empty: 1.",
           .needs = "data.name=csv|parquet|arrays"});
  v.field(
      "columns", c.columns,
      {.help =
           "csv and parquet: the type of columns, where their cells do not show it: "
           "number, category, image (a file) or text, for example {rooms: category}.",
       .needs = "data.name=csv|parquet"});
  v.field("standardize", c.standardize,
          {.help = "csv and parquet: standardize numbers of the input to mean 0 and "
                   "standard deviation 1 of the training rows.",
           .needs = "data.name=csv|parquet"});
}

}  // namespace lockstep::config
