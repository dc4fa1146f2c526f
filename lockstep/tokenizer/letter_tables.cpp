// vocab.json with merges.txt; and what tokenizer.json has in common with them.
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json_problem.h"
#include "lockstep/tokenizer/detail/formats.h"
#include "lockstep/tokenizer/detail/vocab_json.h"

namespace lockstep::tokenizer {
namespace {

// Returns "vocab.json:12", the line in which a token stands: JSON may spell it with
// escapes, so both ways are looked for.
std::string place_of(const LetterTables& tables, const std::string& token) {
  for (const bool ascii : {false, true}) {
    const auto spelled = nlohmann::json(token).dump(
        -1, ' ', ascii, nlohmann::json::error_handler_t::replace);
    const auto at = tables.vocab_text.find(spelled);
    if (at == tables.vocab_text.npos) continue;
    return str(tables.vocab_path, ":", line_of(tables.vocab_text, at));
  }
  return tables.vocab_path;
}

// An added token is spelled as it is, all others in letters.
std::string bytes_of(const LetterTables& tables, const std::string& token, Token id) {
  for (const auto& added : tables.added) {
    if (added.id == id && added.text == token) return token;
  }
  auto bytes = from_letters(token);
  if (bytes && !bytes->empty()) return *bytes;
  throw Error(Fault::io, place_of(tables, token), ": the token '", token, "' of id ",
              id,
              " has a letter that stands for no byte; is this a byte-level "
              "vocabulary?");
}

void place_token(Vocabulary& vocabulary, const LetterTables& tables,
                 const std::pair<std::string, Token>& numbered) {
  const auto& [name, id] = numbered;
  const auto& token = name;  // a lambda captures it
  check_id(id, tables.tokens.size() + tables.added.size(),
           [&] { return place_of(tables, token); });
  if (id >= vocabulary.bytes.size()) vocabulary.bytes.resize(id + 1);
  if (!vocabulary.bytes[id].empty()) {
    throw Error(Fault::io, place_of(tables, token), ": the token '", token,
                "' has the id ", id, ", which '", to_letters(vocabulary.bytes[id]),
                "' has; fetch the file again");
  }
  vocabulary.bytes[id] = bytes_of(tables, token, id);
}

Token find_id(const LetterTables& tables, const std::string& token, std::size_t line) {
  const auto found = tables.tokens.find(token);
  if (found != tables.tokens.end()) return found->second;
  throw Error(Fault::io, tables.merges_place, line, ": '", token,
              "' is not in the vocabulary; the two must come from one model");
}

LetterTables::Pair parse_merge(std::string_view line, std::size_t number,
                               const std::string& place) {
  const auto blank = line.find(' ');
  const bool fits = blank != line.npos && blank > 0 && blank + 1 < line.size() &&
                    line.find(' ', blank + 1) == line.npos;
  if (!fits) {
    throw Error(Fault::io, place, number, ": '", line.substr(0, 40),
                "' is not two tokens with a blank between; fetch the file again");
  }
  return {std::string(line.substr(0, blank)), std::string(line.substr(blank + 1)),
          number};
}

std::vector<LetterTables::Pair> parse_merges(std::string_view text,
                                             const std::string& place) {
  std::vector<LetterTables::Pair> merges;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const auto end = std::min(text.find('\n'), text.size());
    auto line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const bool is_head = number == 1 && line.starts_with("#version");
    if (!line.empty() && !is_head) merges.push_back(parse_merge(line, number, place));
  }
  return merges;
}

}  // namespace

std::size_t line_of(std::string_view text, std::size_t byte) {
  const auto before = text.substr(0, byte);
  return 1 + static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n'));
}

void check_id(Token id, std::size_t num_tokens,
              const std::function<std::string()>& place) {
  const auto most = 4 * num_tokens + 65536;
  if (id < most) return;
  throw Error(Fault::io, place(), ": the id ", id, " is far beyond the ", num_tokens,
              " tokens that are there; fetch the file again");
}

nlohmann::json parse_json(std::string_view text, const std::string& path) {
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    const auto at = error.byte > 0 ? error.byte - 1 : 0;
    throw Error(Fault::io, path, ":", line_of(text, at), ": ", json_problem(error),
                "; fetch the file again");
  } catch (const nlohmann::json::exception& error) {  // a number that is too large
    throw Error(Fault::io, path, ": ", json_problem(error), "; fetch the file again");
  }
}

void read_tokens(const nlohmann::json& vocab, LetterTables& tables) {
  if (!vocab.is_object()) {
    throw Error(Fault::io, tables.vocab_path,
                ": the vocabulary is not a JSON object of tokens and ids; fetch the "
                "file again");
  }
  for (const auto& [token, id] : vocab.items()) {
    const bool fits = id.is_number_integer() && id.get<double>() >= 0 &&
                      id.get<double>() <= 0x7FFFFFFF;
    if (!fits) {
      throw Error(Fault::io, place_of(tables, token), ": the id of '", token, "' is ",
                  id.dump().substr(0, 40),
                  ", not a number from 0 on; fetch the file "
                  "again");
    }
    tables.tokens.emplace(token, id.get<Token>());
  }
}

Vocabulary assemble(LetterTables tables) {
  Vocabulary vocabulary;
  vocabulary.whole_words_first = tables.whole_words_first;
  for (const auto& [token, id] : tables.tokens) {
    place_token(vocabulary, tables, {token, id});
  }
  for (const auto& added : tables.added) {
    if (added.id < vocabulary.bytes.size() && vocabulary.bytes[added.id] == added.text)
      continue;
    place_token(vocabulary, tables, {added.text, added.id});
  }
  vocabulary.byte_tokens.fill(~Token{0});
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const auto found =
        tables.tokens.find(to_letters(std::string(1, static_cast<char>(byte))));
    if (found != tables.tokens.end()) vocabulary.byte_tokens[byte] = found->second;
  }
  for (const auto& pair : tables.merges) {
    vocabulary.merges.push_back({find_id(tables, pair.left, pair.line),
                                 find_id(tables, pair.right, pair.line),
                                 find_id(tables, pair.left + pair.right, pair.line)});
  }
  vocabulary.added = std::move(tables.added);
  return vocabulary;
}

Vocabulary parse_vocab_and_merges(const VocabAndMerges& files) {
  LetterTables tables;
  tables.vocab_path = files.vocab_path;
  tables.vocab_text = files.vocab;
  tables.merges_place = files.merges_path + ":";
  read_tokens(parse_json(files.vocab, files.vocab_path), tables);
  tables.merges = parse_merges(files.merges, tables.merges_place);
  const auto end_of_text = tables.tokens.find(kEndOfText);
  if (end_of_text != tables.tokens.end()) {
    tables.added.push_back({std::string(kEndOfText), end_of_text->second});
  }
  return assemble(std::move(tables));
}

}  // namespace lockstep::tokenizer
