#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>
#include <vector>

#include "lockstep/base/files.h"
#include "lockstep/tokenizer/vocabulary.h"

namespace lockstep::tokenizer {

// Writes tokens as llm.c does and data.name=tokens reads: a header of 256 numbers of 32
// bits (magic, version, count), then tokens of 16 bits, or of 32 where the vocabulary
// is larger than 65,536. The count has 31 bits: further files train_000001.bin and so
// on take what one can not.
//
// The files appear at their places by publish(), each whole; until then they have
// hidden names beside them. The destructor removes what was not published.
class TokenWriter {
 public:
  struct Options {
    std::filesystem::path path;
    std::size_t vocabulary_size = 0;
    std::int64_t most_tokens = std::numeric_limits<std::int32_t>::max();  // of a file
  };

  // Fault::io where the place can not be written to.
  explicit TokenWriter(Options options);
  ~TokenWriter();
  TokenWriter(const TokenWriter&) = delete;
  TokenWriter& operator=(const TokenWriter&) = delete;

  void write(std::span<const Token> tokens);

  // Returns the number of tokens so far, of all files.
  std::int64_t count() const noexcept { return count_; }

  // Returns the names of the files, in order.
  std::vector<std::filesystem::path> publish();

 private:
  struct Shard {
    files::Descriptor file;
    std::filesystem::path path;
    std::filesystem::path hidden;
    std::int64_t count = 0;
  };

  void open_shard();
  void close(Shard& shard);

  Options options_;
  std::vector<Shard> shards_;
  std::int64_t count_ = 0;
  std::vector<char> buffer_;
};

}  // namespace lockstep::tokenizer
