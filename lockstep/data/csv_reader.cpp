#include "lockstep/data/detail/csv_reader.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::data::detail {
namespace {

std::string_view all_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

char separator_of(const std::string& path, std::string_view header) {
  if (text::lower(path).ends_with(".tsv")) return '\t';
  const bool has_comma = header.find(',') != std::string_view::npos;
  return !has_comma && header.find(';') != std::string_view::npos ? ';' : ',';
}

}  // namespace

CsvReader::CsvReader(const std::string& path) : path_(path), file_(path) {
  const auto all = all_of(file_);
  if (all.starts_with("\xEF\xBB\xBF")) at_ = 3;  // a byte order mark
  if (all.starts_with("\xFF\xFE") || all.starts_with("\xFE\xFF")) {
    refuse(1, "the text is UTF-16; save it as UTF-8");
  }
  separator_ =
      separator_of(path, all.substr(at_, all.find_first_of("\r\n", at_) - at_));
  if (!read_cells()) refuse(1, "there is no header; its first row names the columns");
  columns_.assign(texts_.begin(), texts_.begin() + static_cast<std::ptrdiff_t>(count_));
  std::set<std::string> names;
  for (auto& name : columns_) {
    name = std::string(text::trim(name));
    if (name.empty()) refuse(row_line_, "a column of the header has no name");
    if (names.insert(name).second) continue;
    refuse(row_line_, "there are two columns '" + name + "'; rename one");
  }
  first_ = at_;
  first_line_ = line_;
}

void CsvReader::begin(const std::vector<std::string>& columns) {
  places_.clear();
  for (const auto& name : columns) places_.push_back(column_in(*this, name));
  cells_.resize(places_.size());
  at_ = first_;
  line_ = first_line_;
}

bool CsvReader::next(TableRow& row) {
  if (!read_cells()) return false;
  if (count_ != columns_.size()) {
    refuse(row_line_, str(count_, " cells, but the header has ", columns_.size(),
                          " columns; a cell with a separator in it is quoted"));
  }
  for (std::size_t i = 0; i < places_.size(); ++i) {
    cells_[i] = std::string_view(texts_[places_[i]]);
  }
  row = {row_line_, cells_};
  return true;
}

std::string CsvReader::place_of(std::int64_t row) const {
  return str(path_, ":", row);
}

// Reads the cells of the next row that is not blank.
bool CsvReader::read_cells() {
  const auto all = all_of(file_);
  while (take_line_end()) {
  }
  if (at_ >= all.size()) return false;
  row_line_ = line_;
  count_ = 0;
  while (true) {
    if (count_ == texts_.size()) texts_.emplace_back();
    auto& cell = texts_[count_++];
    cell.clear();
    if (at_ < all.size() && all[at_] == '"') read_quoted(cell);
    const auto end = std::min(
        all.size(), all.find_first_of(std::string{separator_, '\n', '\r'}, at_));
    cell.append(all.substr(at_, end - at_));
    at_ = end;
    const bool goes_on = at_ < all.size() && all[at_] == separator_;
    if (!goes_on) break;
    ++at_;
  }
  take_line_end();
  return true;
}

// Goes past CR LF, LF, or the CR of old files, if one is next.
bool CsvReader::take_line_end() {
  const auto all = all_of(file_);
  const auto begin = at_;
  if (at_ < all.size() && all[at_] == '\r') ++at_;
  if (at_ < all.size() && all[at_] == '\n') ++at_;
  if (at_ > begin) ++line_;
  return at_ > begin;
}

void CsvReader::read_quoted(std::string& cell) {
  const auto all = all_of(file_);
  const auto begin = line_;
  for (++at_; at_ < all.size(); ++at_) {
    if (all[at_] == '\n') ++line_;
    if (all[at_] != '"') {
      cell += all[at_];
    } else if (at_ + 1 < all.size() && all[at_ + 1] == '"') {
      cell += all[++at_];
    } else {
      ++at_;
      return;
    }
  }
  refuse(begin, "a quote is opened that nothing closes");
}

void CsvReader::refuse(std::int64_t line, const std::string& what) const {
  throw Error(Fault::io, "data: ", place_of(line), ": ", what);
}

}  // namespace lockstep::data::detail
