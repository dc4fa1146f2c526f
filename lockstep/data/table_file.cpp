#include "lockstep/data/detail/table_file.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::data::detail {

bool is_missing(const Cell& cell) {
  const auto* words = std::get_if<std::string_view>(&cell);
  return words != nullptr ? text::trim(*words).empty() : cell.index() == 0;
}

std::optional<double> number_of(const Cell& cell) {
  if (const auto* words = std::get_if<std::string_view>(&cell)) {
    return text::to_double(text::trim(*words));
  }
  if (const auto* whole = std::get_if<std::int64_t>(&cell)) {
    return static_cast<double>(*whole);
  }
  if (const auto* number = std::get_if<double>(&cell)) return *number;
  return std::nullopt;
}

std::string text_of(const Cell& cell) {
  if (const auto* words = std::get_if<std::string_view>(&cell)) {
    return std::string(text::trim(*words));
  }
  if (const auto* whole = std::get_if<std::int64_t>(&cell)) {
    return std::to_string(*whole);
  }
  if (const auto* number = std::get_if<double>(&cell)) {
    return text::from_double(*number);
  }
  return "";
}

std::size_t column_in(const TableFile& file, const std::string& name) {
  const auto& columns = file.columns();
  const auto at = std::find(columns.begin(), columns.end(), name);
  if (at != columns.end()) return static_cast<std::size_t>(at - columns.begin());
  throw Error(Fault::io, "data: ", file.path(), " has no column '", name,
              "', which the training rows have; it has ", text::join(columns, ", "));
}

}  // namespace lockstep::data::detail
