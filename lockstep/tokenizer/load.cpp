// Tokenizer::load: which file of a place is read.
#include <algorithm>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/tokenizer/detail/formats.h"
#include "lockstep/tokenizer/tokenizer.h"

namespace lockstep::tokenizer {
namespace {

using Path = std::filesystem::path;

constexpr std::int64_t kMostBytes = std::int64_t{256} << 20;
constexpr std::string_view kNames =
    "tokenizer.json, vocab.json with merges.txt, or a .tiktoken file";

Vocabulary read_pair(const Path& vocab) {
  const auto merges = vocab.parent_path() / "merges.txt";
  const auto added = vocab.parent_path() / "added_tokens.json";
  if (std::filesystem::exists(added)) {
    throw Error(Fault::config, "tokenizer: '", added.string(),
                "' has tokens that are not in vocab.json; save the tokenizer as "
                "tokenizer.json, which has all of them");
  }
  const auto vocab_text = files::read(vocab, kMostBytes);
  const auto merges_text = files::read(merges, kMostBytes);
  return parse_vocab_and_merges(
      {vocab_text, merges_text, vocab.string(), merges.string()});
}

Vocabulary read_file(const Path& path) {
  const auto name = path.filename().string();
  if (name.ends_with(".tiktoken")) {
    return parse_tiktoken(files::read(path, kMostBytes), path.string());
  }
  if (name == "vocab.json") return read_pair(path);
  if (name == "merges.txt") return read_pair(path.parent_path() / "vocab.json");
  if (name.ends_with(".json")) {
    return parse_tokenizer_json(files::read(path, kMostBytes), path.string());
  }
  throw Error(Fault::config, "tokenizer: '", path.string(),
              "' is not a file of a tokenizer; name ", kNames, ", or their folder");
}

Path file_in(const Path& folder) {
  for (const auto* name : {"tokenizer.json", "vocab.json"}) {
    if (std::filesystem::exists(folder / name)) return folder / name;
  }
  std::vector<Path> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".tiktoken") found.push_back(entry.path());
  }
  if (found.size() == 1) return found[0];
  throw Error(Fault::config, "tokenizer: '", folder.string(), "' has ",
              found.empty() ? "no" : "several", " files of a tokenizer; name ", kNames);
}

}  // namespace

Tokenizer Tokenizer::load(const Path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    throw Error(Fault::config, "tokenizer: there is no '", path.string(),
                "'; scripts/get_gpt2_vocab.sh fetches GPT-2's, `lockstep tokenizer "
                "train` makes one");
  }
  const auto file = std::filesystem::is_directory(status) ? file_in(path) : path;
  return Tokenizer(read_file(file), file.string());
}

}  // namespace lockstep::tokenizer
