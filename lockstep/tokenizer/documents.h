#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

// The texts that users have: .txt files, each a document, and .jsonl files with a
// document on each line.
namespace lockstep::tokenizer {

struct TextFile {
  std::filesystem::path path;
  bool is_jsonl = false;
};

// Returns the files that `inputs` name: a file as it is (.jsonl and .ndjson hold JSON,
// all others text), of a folder every .txt, .jsonl and .ndjson in it and below, sorted.
// Fault::config, naming it, for one that is missing or a folder without any.
std::vector<TextFile> find_texts(const std::vector<std::filesystem::path>& inputs);

// The bytes of a file: mapped, or read where it is a pipe.
class FileBytes {
 public:
  explicit FileBytes(const std::filesystem::path& path);  // Fault::io
  ~FileBytes();
  FileBytes(FileBytes&& other) noexcept;
  FileBytes& operator=(FileBytes&&) = delete;

  std::string_view text() const noexcept { return text_; }

 private:
  std::string_view text_;
  void* mapped_ = nullptr;
  std::unique_ptr<std::string> held_;
};

// A line of a .jsonl file; blank ones are left out, and so is a byte order mark.
struct JsonLine {
  std::string_view text;
  std::size_t number = 0;  // the first line is 1
};

// Takes the next line off `rest` and counts in `number`; false at the end.
bool next_json_line(std::string_view& rest, JsonLine& line);

// Returns the text in a field of a line. Fault::io beginning with `place`, which is
// "file:line", where it is not a JSON object, or has no such field, or no text in it.
std::string text_of_line(std::string_view line, const std::string& field,
                         const std::string& place);

}  // namespace lockstep::tokenizer
