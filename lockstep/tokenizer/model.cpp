#include "lockstep/tokenizer/detail/model.h"

#include <algorithm>
#include <limits>

#include "lockstep/base/error.h"

namespace lockstep::tokenizer {
namespace {

// Token files and models count tokens in 32 bits with a sign.
constexpr std::size_t kMostTokens = std::numeric_limits<std::int32_t>::max();

void check_merges(const Vocabulary& vocabulary, std::string_view place) {
  const auto size = vocabulary.bytes.size();
  MergeTable table(vocabulary.merges.size());
  for (std::size_t i = 0; i < vocabulary.merges.size(); ++i) {
    const auto& merge = vocabulary.merges[i];
    const bool fits = merge.left < size && merge.right < size && merge.result < size &&
                      vocabulary.bytes[merge.left] + vocabulary.bytes[merge.right] ==
                          vocabulary.bytes[merge.result];
    if (!fits || !table.insert(merge, static_cast<std::uint32_t>(i))) {
      throw Error(Fault::io, place, ": merge ", i + 1, " (", merge.left, " and ",
                  merge.right, " to ", merge.result,
                  fits ? ") appears twice" : ") does not fit the tokens",
                  "; fetch the file again");
    }
  }
}

}  // namespace

Model::Model(Vocabulary from)
    : vocabulary(std::move(from)),
      merges(vocabulary.merges),
      end_of_text(vocabulary.find_added(kEndOfText)) {
  for (const auto& token : vocabulary.added) {
    begins_added[static_cast<unsigned char>(token.text[0])] = true;
  }
  if (!vocabulary.whole_words_first) return;
  words.reserve(vocabulary.bytes.size());
  for (std::size_t id = 0; id < vocabulary.bytes.size(); ++id) {
    const auto& bytes = vocabulary.bytes[id];
    if (!bytes.empty()) words.emplace(bytes, static_cast<Token>(id));
  }
  for (const auto& token : vocabulary.added) words.erase(token.text);
}

std::optional<AddedMatch> find_added(const Model& model, std::string_view text,
                                     bool special) {
  if (model.vocabulary.added.empty()) return std::nullopt;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (!model.begins_added[static_cast<unsigned char>(text[at])]) continue;
    const AddedToken* longest = nullptr;
    for (const auto& token : model.vocabulary.added) {
      if (token.special && !special) continue;
      if (longest != nullptr && token.text.size() <= longest->text.size()) continue;
      if (text.substr(at, token.text.size()) == token.text) longest = &token;
    }
    if (longest != nullptr) return AddedMatch{at, longest};
  }
  return std::nullopt;
}

void check_vocabulary(const Vocabulary& vocabulary, std::string_view place) {
  if (vocabulary.bytes.size() > kMostTokens) {
    throw Error(Fault::io, place, ": has ", vocabulary.bytes.size(),
                " tokens, more than ", kMostTokens, "; fetch the file again");
  }
  for (std::size_t byte = 0; byte < vocabulary.byte_tokens.size(); ++byte) {
    const auto token = vocabulary.byte_tokens[byte];
    const std::string wanted(1, static_cast<char>(byte));
    if (token < vocabulary.bytes.size() && vocabulary.bytes[token] == wanted) continue;
    throw Error(Fault::io, place, ": there is no token for the byte ", byte,
                "; a byte-level vocabulary has one for each of the 256, fetch the file "
                "again");
  }
  for (const auto& token : vocabulary.added) {
    const bool fits = !token.text.empty() && token.id < vocabulary.bytes.size() &&
                      vocabulary.bytes[token.id] == token.text;
    if (!fits) {
      throw Error(Fault::io, place, ": the added token '", token.text, "' with the id ",
                  token.id, " does not fit the other tokens; fetch the file again");
    }
  }
  check_merges(vocabulary, place);
}

}  // namespace lockstep::tokenizer
