// tokenizer.json of Hugging Face: taken if it describes a byte-level BPE with GPT-2's
// pattern, refused by name where it asks for anything else.
#include "lockstep/base/error.h"
#include "lockstep/base/json_problem.h"
#include "lockstep/tokenizer/detail/formats.h"
#include "lockstep/tokenizer/detail/vocab_json.h"

namespace lockstep::tokenizer {
namespace {

using nlohmann::json;

constexpr std::string_view kRemedy =
    "; Lockstep reads byte-level BPE with GPT-2's pattern, choose such a tokenizer";

[[noreturn]] void refuse(const std::string& path, std::string_view what,
                         const json& value) {
  throw Error(Fault::config, path, ": ", what, " is ",
              value.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 80),
              kRemedy);
}

// Absent, null, false and "" all mean that a feature is not used.
bool is_unset(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return true;
  return *found == json(false) || *found == json("");
}

void check_pre_tokenizer(const json& file, const std::string& path) {
  const auto found = file.find("pre_tokenizer");
  const auto splitter = found == file.end() ? json() : *found;
  const bool fits = splitter.is_object() &&
                    splitter.value("type", json()) == "ByteLevel" &&
                    splitter.value("add_prefix_space", json()) == json(false) &&
                    splitter.value("use_regex", json(true)) == json(true);
  if (!fits) refuse(path, "\"pre_tokenizer\"", splitter);
}

void check_model(const json& model, const std::string& path) {
  const auto type = model.value("type", json("BPE"));  // old files leave it out
  if (type != "BPE") refuse(path, "\"model.type\"", type);
  for (const auto* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix",
                          "byte_fallback"}) {
    if (!is_unset(model, key)) refuse(path, str("\"model.", key, "\""), model.at(key));
  }
}

AddedToken parse_added(const json& entry, const std::string& path) {
  for (const auto* key : {"single_word", "lstrip", "rstrip"}) {
    if (!is_unset(entry, key)) {
      refuse(path, str("\"", key, "\" of an added token"), entry);
    }
  }
  AddedToken token{.text = entry.at("content").get<std::string>(),
                   .special = entry.value("special", false)};
  const auto id = entry.at("id").get<std::int64_t>();
  if (token.text.empty() || id < 0 || id > 0x7FFFFFFF) {
    throw Error(Fault::io, path, ": the added token '", token.text, "' with the id ",
                id, " cannot be; fetch the file again");
  }
  token.id = static_cast<Token>(id);
  return token;
}

// Both ways to write a merge: "a b", and ["a", "b"] since a token may have a blank.
LetterTables::Pair parse_pair(const json& merge, std::size_t number,
                              const std::string& path) {
  if (merge.is_array() && merge.size() == 2) {
    return {merge[0].get<std::string>(), merge[1].get<std::string>(), number};
  }
  const auto text = merge.is_string() ? merge.get<std::string>() : std::string();
  const auto blank = text.find(' ');
  if (blank == text.npos || text.find(' ', blank + 1) != text.npos) {
    throw Error(
        Fault::io, path, ": merge ", number, " is not a pair of tokens: ",
        merge.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 80),
        "; fetch the file again");
  }
  return {text.substr(0, blank), text.substr(blank + 1), number};
}

LetterTables read_tables(const json& file, std::string_view text,
                         const std::string& path) {
  if (!is_unset(file, "normalizer")) {
    refuse(path, "\"normalizer\"", file.at("normalizer"));
  }
  check_pre_tokenizer(file, path);
  const auto& model = file.at("model");
  check_model(model, path);
  LetterTables tables;
  tables.vocab_path = path;
  tables.vocab_text = text;
  tables.merges_place = path + ": merge ";
  tables.whole_words_first = !is_unset(model, "ignore_merges");
  read_tokens(model.at("vocab"), tables);
  for (const auto& entry : file.value("added_tokens", json::array())) {
    tables.added.push_back(parse_added(entry, path));
  }
  std::size_t number = 0;
  for (const auto& merge : model.at("merges")) {
    tables.merges.push_back(parse_pair(merge, ++number, path));
  }
  return tables;
}

}  // namespace

Vocabulary parse_tokenizer_json(std::string_view text, const std::string& path) {
  const auto file = parse_json(text, path);
  try {
    return assemble(read_tables(file, text, path));
  } catch (const json::exception& error) {
    throw Error(Fault::io, path, ": is not a tokenizer: ", json_problem(error),
                "; fetch the file again");
  }
}

}  // namespace lockstep::tokenizer
