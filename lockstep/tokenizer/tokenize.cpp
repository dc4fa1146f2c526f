#include "lockstep/tokenizer/tokenize.h"

#include <cmath>
#include <memory>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/tokenizer/documents.h"
#include "lockstep/tokenizer/parallel.h"
#include "lockstep/tokenizer/token_file.h"

namespace lockstep::tokenizer {
namespace {

using Path = std::filesystem::path;

constexpr std::size_t kTextPieceBytes = 256 << 10;
// What is encoded between two writes; the second keeps the number of mapped files low.
constexpr std::size_t kBatchBytes = 16 << 20;
constexpr std::size_t kBatchPieces = 4096;

struct OpenFile {
  std::string path;
  FileBytes bytes;
};

// A document, or a part of a large one.
struct TextPiece {
  std::shared_ptr<const OpenFile> file;
  std::string_view text;
  std::size_t line = 0;  // of a .jsonl file; 0: the text itself
  bool begins = true;    // a document
};

// Rethrows what an encoder refuses, with the place of the text.
[[noreturn]] void add_place(const Error& error, const std::string& place) {
  std::string_view what = error.what();
  constexpr std::string_view kModule = "tokenizer: ";
  if (what.starts_with(kModule)) what.remove_prefix(kModule.size());
  throw Error(error.fault(), place, ": ", what);
}

class Tokenizing {
 public:
  Tokenizing(const Tokenizer& tokenizer, const TokenizeRequest& request)
      : tokenizer_(tokenizer),
        request_(request),
        separator_(*tokenizer.end_of_text()),
        encoder_(tokenizer, request.threads),
        train_({.path = request.output, .vocabulary_size = tokenizer.size()}) {
    if (request.val_fraction > 0) {
      val_.emplace(TokenWriter::Options{.path = val_path(request.output),
                                        .vocabulary_size = tokenizer.size()});
    }
  }

  TokenizeResult run() {
    const auto texts = find_texts(request_.inputs);
    for (const auto& text : texts) {
      std::error_code ignored;
      const auto size = std::filesystem::file_size(text.path, ignored);
      if (!ignored) progress_.bytes_total += static_cast<std::int64_t>(size);
    }
    for (const auto& text : texts) add_file(text, texts.size() == 1);
    flush();
    check_not_empty();
    result_.tokens = train_.count() + (val_ ? val_->count() : 0);
    if (val_) {
      result_.val_tokens = val_->count();
      result_.val_files = val_->publish();
    }
    result_.files = train_.publish();
    return result_;
  }

 private:
  void add_file(const TextFile& text, bool is_only_one) {
    file_ = std::make_shared<const OpenFile>(
        OpenFile{text.path.string(), FileBytes(text.path)});
    const auto bytes = file_->bytes.text();
    result_.bytes += static_cast<std::int64_t>(bytes.size());
    if (text.is_jsonl) {
      add_lines(bytes);
    } else if (is_only_one && val_) {
      add_halves(bytes);
    } else {
      add_text(bytes);
    }
  }

  void add_lines(std::string_view rest) {
    JsonLine line;
    while (next_json_line(rest, line)) add({file_, line.text, line.number, true});
  }

  void add_text(std::string_view text) {
    if (text.empty()) ++result_.empty;
    bool begins = true;
    for (const auto piece : cut(tokenizer_, text, kTextPieceBytes)) {
      add({file_, piece, 0, begins});
      begins = false;
    }
  }

  // The only document: its end is held out, from the end of a word on.
  void add_halves(std::string_view text) {
    const auto kept = static_cast<double>(text.size()) * (1 - request_.val_fraction);
    const auto parts = cut(tokenizer_, text, static_cast<std::size_t>(kept));
    const auto first = parts.empty() ? text : parts[0];
    add_text(first);
    flush();
    all_to_val_ = true;
    add_text(text.substr(first.size()));
  }

  void add(const TextPiece& piece) {
    batch_.push_back(piece);
    batch_bytes_ += piece.text.size();
    if (batch_bytes_ >= kBatchBytes || batch_.size() >= kBatchPieces) flush();
  }

  void flush() {
    std::vector<std::vector<Token>> tokens(batch_.size());
    encoder_.for_each(batch_.size(), [&](std::size_t i, Encoder& encoder) {
      encode(batch_[i], encoder, tokens[i]);
    });
    for (std::size_t i = 0; i < batch_.size(); ++i) write(batch_[i], tokens[i]);
    progress_.bytes_done += static_cast<std::int64_t>(batch_bytes_);
    progress_.tokens = train_.count() + (val_ ? val_->count() : 0);
    batch_.clear();
    batch_bytes_ = 0;
    if (request_.progress) request_.progress(progress_);
  }

  void encode(const TextPiece& piece, Encoder& encoder,
              std::vector<Token>& tokens) const {
    if (piece.line == 0) {
      try {
        return encoder.encode(piece.text, request_.special, tokens);
      } catch (const Error& error) {
        add_place(error, piece.file->path);
      }
    }
    const auto place = str(piece.file->path, ":", piece.line);
    const auto text = text_of_line(piece.text, request_.field, place);
    try {
      encoder.encode(text, request_.special, tokens);
    } catch (const Error& error) {
      add_place(error, place);
    }
  }

  void write(const TextPiece& piece, const std::vector<Token>& tokens) {
    if (tokens.empty()) {
      ++result_.empty;
      return;
    }
    if (piece.begins) begin_document();
    (to_val_ ? *val_ : train_).write(tokens);
  }

  void begin_document() {
    const auto share = request_.val_fraction;
    const auto number = static_cast<double>(result_.documents++);
    // Every tenth of 0.1: exactly the share, however many there are.
    to_val_ = val_ && (all_to_val_ ||
                       std::floor((number + 1) * share) > std::floor(number * share));
    result_.val_documents += to_val_ ? 1 : 0;
    (to_val_ ? *val_ : train_).write({&separator_, 1});
  }

  void check_not_empty() const {
    if (train_.count() == 0) {
      throw Error(Fault::config, "tokenizer: '", request_.inputs[0].string(), "'",
                  request_.inputs.size() > 1 ? " and the others have" : " has",
                  " no text; name files that have some");
    }
    if (val_ && val_->count() == 0) {
      throw Error(Fault::config, "tokenizer: ", request_.val_fraction, " of ",
                  result_.documents,
                  " documents is none; raise --val-fraction, or leave it out");
    }
  }

  const Tokenizer& tokenizer_;
  const TokenizeRequest& request_;
  const Token separator_;
  ParallelEncoder encoder_;
  TokenWriter train_;
  std::optional<TokenWriter> val_;
  std::shared_ptr<const OpenFile> file_;  // that is being read
  std::vector<TextPiece> batch_;
  std::size_t batch_bytes_ = 0;
  bool to_val_ = false;  // the document that is being written
  bool all_to_val_ = false;
  TokenizeResult result_;
  TokenizeProgress progress_;
};

}  // namespace

Path val_path(const Path& output) {
  auto stem = output.stem().string();
  const auto at = stem.rfind("train");
  if (at == stem.npos) {
    stem += "_val";
  } else {
    stem.replace(at, std::string_view("train").size(), "val");
  }
  return output.parent_path() / (stem + output.extension().string());
}

TokenizeResult tokenize(const Tokenizer& tokenizer, const TokenizeRequest& request) {
  if (!tokenizer.end_of_text()) {
    throw Error(Fault::config, "tokenizer: it has no ", kEndOfText,
                ", which stands between documents; use one that has");
  }
  if (!(request.val_fraction >= 0 && request.val_fraction < 1)) {
    throw Error(Fault::config, "tokenizer: a validation part of ", request.val_fraction,
                " is not between 0 and 1");
  }
  return Tokenizing(tokenizer, request).run();
}

}  // namespace lockstep::tokenizer
