// Rows of Parquet files, as many as there are for each part.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/detail/parquet_reader.h"
#include "lockstep/data/detail/table_dataset.h"
#include "lockstep/data/sources.h"
#include "lockstep/data/subset.h"

namespace lockstep::data {
namespace {

using Path = std::filesystem::path;

// Returns all Parquet files of a folder and of those below it.
std::vector<Path> files_in(const Path& folder) {
  std::vector<Path> files;
  std::error_code error;
  using Walk = std::filesystem::recursive_directory_iterator;
  for (Walk at(folder, error); !error && at != Walk(); at.increment(error)) {
    const auto kind = text::lower(at->path().extension().string());
    std::error_code ignored;
    if ((kind == ".parquet" || kind == ".pq") && at->is_regular_file(ignored)) {
      files.push_back(at->path());
    }
  }
  if (error) {
    throw Error(Fault::io, "data: '", folder.string(),
                "' cannot be read: ", error.message());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Returns the files of a part, by the words in their paths.
std::vector<std::string> files_of(const config::DataConfig& config, Split split) {
  const Path folder = require_folder(config, "a folder of .parquet files");
  if (std::filesystem::is_regular_file(folder)) {
    if (split == Split::train) return {folder.string()};
    throw Error(Fault::config, "data.dir: '", folder.string(),
                "' is one file, and there is none to evaluate on; hold samples back "
                "with data.split=0.1");
  }
  std::vector<std::string> files;
  for (const auto& file : files_in(folder)) {
    const bool is_eval = names_eval(file.lexically_relative(folder).string());
    if (is_eval == (split == Split::eval)) files.push_back(file.string());
  }
  if (!files.empty()) return files;
  throw Error(Fault::io, "data: '", folder.string(), "' has no .parquet file",
              split == Split::train
                  ? " to train on; set data.dir to their folder"
                  : " with 'val' or 'test' in its name to evaluate on; add one, or "
                    "hold samples back with data.split=0.1");
}

}  // namespace

Opened open_parquet(const config::DataConfig& config, Split split) {
  detail::TableFiles files;
  files.train = std::make_unique<detail::ParquetReader>(files_of(config, Split::train));
  if (split == Split::eval) {
    files.eval = std::make_unique<detail::ParquetReader>(files_of(config, split));
  }
  return thinned(detail::open_table(files, config), sample_limit(config, split));
}

}  // namespace lockstep::data
