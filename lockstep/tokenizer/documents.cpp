#include "lockstep/tokenizer/documents.h"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/json_problem.h"
#include "lockstep/base/text.h"

namespace lockstep::tokenizer {
namespace {

using Path = std::filesystem::path;

bool is_jsonl(const Path& path) {
  const auto extension = text::lower(path.extension().string());
  return extension == ".jsonl" || extension == ".ndjson";
}

bool is_text(const Path& path) {
  return is_jsonl(path) || text::lower(path.extension().string()) == ".txt";
}

void add_folder(const Path& folder, std::vector<TextFile>& texts) {
  std::vector<Path> found;
  try {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file() && is_text(entry.path())) {
        found.push_back(entry.path());
      }
    }
  } catch (const std::filesystem::filesystem_error& error) {
    files::fail("read", error.path1(), error.code().value());
  }
  if (found.empty()) {
    throw Error(Fault::config, "tokenizer: the folder '", folder.string(),
                "' has no .txt or .jsonl file; name another, or the files themselves");
  }
  std::sort(found.begin(), found.end());
  for (auto& path : found) texts.push_back({path, is_jsonl(path)});
}

}  // namespace

std::vector<TextFile> find_texts(const std::vector<Path>& inputs) {
  std::vector<TextFile> texts;
  for (const auto& input : inputs) {
    std::error_code error;
    const auto status = std::filesystem::status(input, error);
    if (!std::filesystem::exists(status)) {
      throw Error(Fault::config, "tokenizer: there is no '", input.string(),
                  "'; name a .txt or .jsonl file, or a folder of them");
    }
    if (std::filesystem::is_directory(status)) {
      add_folder(input, texts);
    } else {
      texts.push_back({input, is_jsonl(input)});
    }
  }
  return texts;
}

FileBytes::FileBytes(const Path& path) {
  const files::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) files::fail("read", path, errno);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) files::fail("read", path, errno);
  if (!S_ISREG(info.st_mode)) {
    held_ = std::make_unique<std::string>(
        files::read(path, std::numeric_limits<std::int64_t>::max()));
    text_ = *held_;
    return;
  }
  if (info.st_size == 0) return;
  const auto size = static_cast<std::size_t>(info.st_size);
  mapped_ = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (mapped_ == MAP_FAILED) files::fail("read", path, errno);
  ::madvise(mapped_, size, MADV_SEQUENTIAL);
  text_ = {static_cast<const char*>(mapped_), size};
}

FileBytes::FileBytes(FileBytes&& other) noexcept
    : text_(other.text_),
      mapped_(std::exchange(other.mapped_, nullptr)),
      held_(std::move(other.held_)) {}

FileBytes::~FileBytes() {
  if (mapped_ != nullptr) ::munmap(mapped_, text_.size());
}

bool next_json_line(std::string_view& rest, JsonLine& line) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  while (!rest.empty()) {
    const auto end = std::min(rest.find('\n'), rest.size());
    auto text = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (++line.number == 1 && text.starts_with(kByteOrderMark)) {
      text.remove_prefix(kByteOrderMark.size());
    }
    line.text = text::trim(text);
    if (!line.text.empty()) return true;
  }
  return false;
}

std::string text_of_line(std::string_view line, const std::string& field,
                         const std::string& place) {
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(line);
  } catch (const nlohmann::json::exception& error) {
    throw Error(Fault::io, place, ": ", json_problem(error), "; correct the line");
  }
  if (!json.is_object()) {
    throw Error(Fault::io, place, ": the line is not a JSON object but ",
                json.type_name(), "; write {\"", field, "\": \"...\"}");
  }
  const auto found = json.find(field);
  if (found == json.end()) {
    throw Error(Fault::io, place, ": there is no field '", field,
                "'; --field names the one that holds the text");
  }
  if (!found->is_string()) {
    throw Error(Fault::io, place, ": the field '", field, "' is ", found->type_name(),
                ", not a text; --field names the one that is");
  }
  return std::move(found->get_ref<std::string&>());
}

}  // namespace lockstep::tokenizer
