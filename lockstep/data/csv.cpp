// Rows of CSV files, one for each part.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/detail/csv_reader.h"
#include "lockstep/data/detail/table_dataset.h"
#include "lockstep/data/sources.h"
#include "lockstep/data/subset.h"

namespace lockstep::data {
namespace {

using Path = std::filesystem::path;

// Returns the file of a part: the only one, by its name, or without one in two.
std::string file_of(const config::DataConfig& config, Split split) {
  const Path folder = require_folder(config, "a folder of .csv files");
  if (std::filesystem::is_regular_file(folder)) {
    if (split == Split::train) return folder.string();
    throw Error(Fault::config, "data.dir: '", folder.string(),
                "' is one file, and there is none to evaluate on; hold samples back "
                "with data.split=0.1");
  }
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const auto kind = text::lower(entry.path().extension().string());
    if (kind != ".csv" && kind != ".tsv") continue;
    const bool is_eval = names_eval(entry.path().filename().string());
    if (is_eval == (split == Split::eval)) files.push_back(entry.path().string());
  }
  if (error) {
    throw Error(Fault::io, "data: '", folder.string(),
                "' cannot be read: ", error.message());
  }
  if (files.size() == 1) return files[0];
  std::sort(files.begin(), files.end());
  throw Error(Fault::io, "data: '", folder.string(), "' has ",
              files.empty() ? "no .csv file" : text::join(files, " and "),
              split == Split::train ? " to train on; data.dir may name the file"
              : files.empty()       ? " with 'val' or 'test' in its name to evaluate "
                                      "on; add one, or hold samples back with "
                                      "data.split=0.1"
                                    : " to evaluate on; keep one");
}

}  // namespace

Opened open_csv(const config::DataConfig& config, Split split) {
  detail::TableFiles files;
  files.train = std::make_unique<detail::CsvReader>(file_of(config, Split::train));
  if (split == Split::eval) {
    files.eval = std::make_unique<detail::CsvReader>(file_of(config, split));
  }
  return thinned(detail::open_table(files, config), sample_limit(config, split));
}

}  // namespace lockstep::data
