#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/tokenizer/tokenizer.h"

namespace lockstep::tokenizer {

struct TokenizeProgress {
  std::int64_t bytes_done = 0;
  std::int64_t bytes_total = 0;
  std::int64_t tokens = 0;
};

struct TokenizeRequest {
  std::vector<std::filesystem::path> inputs;
  std::filesystem::path output;  // "train.bin"
  double val_fraction = 0;       // of the documents; of the bytes if there is only one
  std::string field = "text";    // of .jsonl
  Special special = Special::refuse;
  std::size_t threads = 1;
  std::function<void(const TokenizeProgress&)> progress = {};
};

struct TokenizeResult {
  std::int64_t documents = 0;  // that have text
  std::int64_t empty = 0;      // that have none, and are left out
  std::int64_t bytes = 0;      // of the files
  std::int64_t tokens = 0;     // those of the held-out documents included
  std::int64_t val_documents = 0;
  std::int64_t val_tokens = 0;
  std::vector<std::filesystem::path> files;
  std::vector<std::filesystem::path> val_files;
};

// Returns "val.bin" for "train.bin", "corpus_val.bin" for "corpus.bin": a data set of
// tokens finds its splits by these names.
std::filesystem::path val_path(const std::filesystem::path& output);

// Writes the tokens of all documents, <|endoftext|> before each, in the order of the
// files. With a val_fraction of 0.1 every tenth document goes to val_path(output). The
// result does not depend on the number of threads. Nothing is written unless all is.
//
// Fault::config for what can not be asked for, Fault::io beginning with "file:line" for
// a document that can not be read; a text with special tokens in it is refused with its
// place, too.
TokenizeResult tokenize(const Tokenizer& tokenizer, const TokenizeRequest& request);

}  // namespace lockstep::tokenizer
