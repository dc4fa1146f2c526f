#include "lockstep/tokenizer/files.h"

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"

namespace lockstep::tokenizer {
namespace {

using nlohmann::ordered_json;

std::string quoted(const std::string& text) {
  return ordered_json(text).dump();
}

bool is_added(const Vocabulary& vocabulary, Token id) {
  for (const auto& token : vocabulary.added) {
    if (token.id == id) return true;
  }
  return false;
}

// Returns the spelling in vocab.json: added tokens as they are, others in letters.
std::string spelling(const Vocabulary& vocabulary, Token id) {
  const auto& bytes = vocabulary.bytes[id];
  return is_added(vocabulary, id) ? bytes : to_letters(bytes);
}

ordered_json byte_level(bool add_prefix_space) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", true},
          {"use_regex", true}};
}

ordered_json added_tokens(const Vocabulary& vocabulary) {
  auto list = ordered_json::array();
  for (const auto& token : vocabulary.added) {
    list.push_back({{"id", token.id},
                    {"content", token.text},
                    {"single_word", false},
                    {"lstrip", false},
                    {"rstrip", false},
                    {"normalized", false},
                    {"special", token.special}});
  }
  return list;
}

std::string merge_list(const Vocabulary& vocabulary) {
  std::string list;
  for (const auto& merge : vocabulary.merges) {
    list += list.empty() ? "[" : ",\n[";
    list += quoted(to_letters(vocabulary.bytes[merge.left])) + "," +
            quoted(to_letters(vocabulary.bytes[merge.right])) + "]";
  }
  return "[" + list + "]";
}

}  // namespace

std::string vocab_json(const Vocabulary& vocabulary) {
  std::string text;
  for (std::size_t id = 0; id < vocabulary.bytes.size(); ++id) {
    if (vocabulary.bytes[id].empty()) continue;
    text += text.empty() ? "{" : ",\n";
    text += quoted(spelling(vocabulary, static_cast<Token>(id))) + ": " +
            std::to_string(id);
  }
  return text + "}\n";
}

std::string merges_txt(const Vocabulary& vocabulary) {
  std::string text = "#version: 0.2\n";
  for (const auto& merge : vocabulary.merges) {
    text += to_letters(vocabulary.bytes[merge.left]) + " " +
            to_letters(vocabulary.bytes[merge.right]) + "\n";
  }
  return text;
}

std::string tokenizer_json(const Vocabulary& vocabulary) {
  // The two long lists go in by hand: as a tree they would take ten times their size.
  constexpr std::string_view kVocabMark = "\"@vocab@\"";
  constexpr std::string_view kMergesMark = "\"@merges@\"";
  const ordered_json file = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added_tokens(vocabulary)},
      {"normalizer", nullptr},
      {"pre_tokenizer", byte_level(false)},
      {"post_processor", byte_level(true)},
      {"decoder", byte_level(true)},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", ""},
        {"end_of_word_suffix", ""},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", vocabulary.whole_words_first},
        {"vocab", "@vocab@"},
        {"merges", "@merges@"}}},
  };
  auto text = file.dump(2);
  // The model is the last member, so the last marks are ours, whatever tokens are
  // called.
  const auto merges_at = text.rfind(kMergesMark);
  const auto vocab_at = text.rfind(kVocabMark, merges_at);
  text.replace(merges_at, kMergesMark.size(), merge_list(vocabulary));
  text.replace(vocab_at, kVocabMark.size(), vocab_json(vocabulary));
  return text + "\n";
}

std::string tokenizer_config_json(const Vocabulary& vocabulary) {
  ordered_json config = {{"tokenizer_class", "GPT2Tokenizer"},
                         {"add_prefix_space", false},
                         {"clean_up_tokenization_spaces", false}};
  if (vocabulary.find_added(kEndOfText)) {
    for (const auto* role : {"bos_token", "eos_token", "unk_token"}) {
      config[role] = kEndOfText;
    }
  }
  return config.dump(2) + "\n";
}

void save(const Tokenizer& tokenizer, const std::filesystem::path& folder) {
  const auto& vocabulary = tokenizer.vocabulary();
  files::make_new_directory(folder);
  if (vocabulary.whole_words_first) {
    std::filesystem::remove(folder / "vocab.json");
    std::filesystem::remove(folder / "merges.txt");
  } else {
    files::write_atomically(folder / "vocab.json", vocab_json(vocabulary));
    files::write_atomically(folder / "merges.txt", merges_txt(vocabulary));
  }
  files::write_atomically(folder / "tokenizer_config.json",
                          tokenizer_config_json(vocabulary));
  files::write_atomically(folder / "tokenizer.json", tokenizer_json(vocabulary));
}

}  // namespace lockstep::tokenizer
