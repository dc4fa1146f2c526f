// Windows of token files: bare numbers, or behind the header that llm.c writes.
#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/detail/mapped_file.h"
#include "lockstep/data/detail/token_bytes.h"
#include "lockstep/data/sources.h"

namespace lockstep::data {
namespace {

using Path = std::filesystem::path;

// 256 numbers of 32 bits: magic, version, number of tokens.
constexpr std::int64_t kHeaderBytes = 1024;
constexpr std::int32_t kMagic16 = 20240520;
constexpr std::int32_t kMagic32 = 20240801;

// The tokens of one file.
class Shard {
 public:
  Shard(const Path& path, config::TokenType type) : file_(path), path_(path) {
    std::array<std::int32_t, 3> header{};
    const auto bytes = static_cast<std::int64_t>(file_.bytes().size());
    if (bytes >= kHeaderBytes) {
      std::memcpy(header.data(), file_.bytes().data(), sizeof header);
    }
    const bool has_header = header[0] == kMagic16 || header[0] == kMagic32;
    if (has_header) {
      width_ = header[0] == kMagic16 ? 2 : 4;
      begin_ = kHeaderBytes;
    } else {
      width_ = type == config::TokenType::uint32 ? 4 : 2;
    }
    count_ = (bytes - begin_) / width_;
    if ((bytes - begin_) % width_ != 0) {
      throw Error(Fault::io, "data: '", path.string(), "' has ", bytes - begin_,
                  " bytes of tokens, which is not a multiple of ", width_,
                  "; it is truncated, or data.token_type (now ", name_of(type),
                  ") is not its type");
    }
    if (has_header) check_count(header[2]);
  }

  std::int64_t count() const noexcept { return count_; }
  const Path& path() const noexcept { return path_; }

  // Fills `to` with the tokens from `first` on.
  void read(std::int64_t first, std::span<std::int64_t> to) const {
    if (width_ == 2) {
      read_as<std::uint16_t>(first, to);
    } else {
      read_as<std::uint32_t>(first, to);
    }
  }

  std::int64_t largest() const {
    constexpr std::int64_t kPiece = 4096;
    std::array<std::int64_t, kPiece> piece{};
    std::int64_t most = 0;
    for (std::int64_t at = 0; at < count_; at += kPiece) {
      const auto part = std::span(piece).first(
          static_cast<std::size_t>(std::min(kPiece, count_ - at)));
      read(at, part);
      most = std::max(most, *std::max_element(part.begin(), part.end()));
    }
    return most;
  }

 private:
  void check_count(std::int64_t says) {
    if (says <= count_ && says >= 0) {
      count_ = says;
      return;
    }
    throw Error(Fault::io, "data: the header of '", path_.string(),
                "' says that it holds ", says, " tokens, but ", count_,
                " are there; copy it again");
  }

  // Byte by byte copies of unaligned numbers, which compilers turn into wide moves.
  template <typename T>
  void read_as(std::int64_t first, std::span<std::int64_t> to) const {
    const auto* from = file_.bytes().data() + begin_ + first * width_;
    for (std::size_t i = 0; i < to.size(); ++i) {
      T token = 0;
      std::memcpy(&token, from + i * sizeof(T), sizeof(T));
      to[i] = static_cast<std::int64_t>(token);
    }
  }

  detail::MappedFile file_;
  Path path_;
  std::int64_t begin_ = 0;  // byte of the first token
  std::int64_t width_ = 2;  // bytes of a token
  std::int64_t count_ = 0;
};

class Tokens : public Dataset {
 public:
  Tokens(std::vector<Shard> shards, const config::DataConfig& config, Split split)
      : shards_(std::move(shards)), sequence_(config.sequence) {
    std::int64_t largest = 0;
    for (const auto& shard : shards_) {
      ends_.push_back(size() +
                      std::max<std::int64_t>(shard.count() - 1, 0) / sequence_);
      // The recipe may give the number of classes; else it is looked up.
      if (config.classes == 0) largest = std::max(largest, shard.largest());
    }
    if (size() == 0) {
      throw Error(Fault::io, "data: '", shards_[0].path().string(), "' holds ",
                  shards_[0].count(),
                  " tokens, a sample needs data.sequence + 1 = ", sequence_ + 1,
                  "; lower data.sequence");
    }
    spec_.shape = {sequence_};
    spec_.target_shape = {sequence_};
    spec_.dtype = torch::kInt64;
    spec_.num_classes = config.classes > 0 ? config.classes : largest + 1;
    if (!config.text.tokenizer.empty()) add_bytes(config.text.tokenizer);
    const auto limit = sample_limit(config, split);
    limit_ = limit > 0 ? std::min(limit, size()) : size();
  }

  std::int64_t size() const noexcept override {
    return limit_ > 0 ? limit_ : ends_.empty() ? 0 : ends_.back();
  }
  const SampleSpec& spec() const noexcept override { return spec_; }

  void read_sample(const Visit& visit, const SampleBuffer& room) const override {
    const auto found = std::upper_bound(ends_.begin(), ends_.end(), visit.index);
    const auto number = static_cast<std::size_t>(found - ends_.begin());
    const auto before = number == 0 ? 0 : ends_[number - 1];
    const auto first = (visit.index - before) * sequence_;
    const std::span input(reinterpret_cast<std::int64_t*>(room.input.data()),
                          static_cast<std::size_t>(sequence_));
    shards_[number].read(first, input);
    shards_[number].read(first + 1, room.target);
    for (std::size_t i = 0; i < token_bytes_in(room).size(); ++i) {
      const auto token = static_cast<std::size_t>(room.target[i]);
      token_bytes_in(room)[i] = token < bytes_.size() ? bytes_[token] : 0;
    }
    if (input[0] < spec_.num_classes) return;  // the others are targets, too
    throw Error(Fault::io, "'", shards_[number].path().string(), "' has the token ",
                input[0], " at ", first, ", data.classes is ", spec_.num_classes);
  }

 private:
  void add_bytes(const std::string& tokenizer) {
    bytes_ = detail::token_bytes(tokenizer::Tokenizer::load(tokenizer));
    const auto tokens = static_cast<std::int64_t>(bytes_.size());
    if (tokens > spec_.num_classes) {
      throw Error(Fault::config, "data.tokenizer: '", tokenizer, "' has ", tokens,
                  " tokens, the vocabulary of the files ", spec_.num_classes,
                  "; set data.classes=", tokens,
                  ", or name the tokenizer that made "
                  "them");
    }
    spec_.fields = {
        {.name = "target_bytes", .shape = {sequence_}, .dtype = torch::kInt64}};
  }

  // Returns the place of the field; empty if there is none.
  std::span<std::int64_t> token_bytes_in(const SampleBuffer& room) const {
    if (bytes_.empty()) return {};
    return {reinterpret_cast<std::int64_t*>(room.fields[0].data()),
            static_cast<std::size_t>(sequence_)};
  }

  std::vector<Shard> shards_;
  std::int64_t sequence_;
  std::vector<std::int64_t> bytes_;  // of each token; empty: not known
  std::vector<std::int64_t> ends_;   // windows of this shard and of those before
  std::int64_t limit_ = 0;
  SampleSpec spec_;
};

// Returns the files of a split by their names, in the order of the names.
std::vector<Path> list_files(const Path& folder, Split split) {
  std::vector<Path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const auto name = text::lower(entry.path().filename().string());
    if (entry.path().extension() != ".bin") continue;
    const bool eval = names_eval(name);
    const bool train = !eval && name.find("train") != name.npos;
    const bool fits = split == Split::eval ? eval : train;
    if (fits) files.push_back(entry.path());
  }
  if (files.empty()) {
    throw Error(Fault::io, "data: '", folder.string(), "' has no file like ",
                split == Split::train ? "*train*.bin" : "*val*.bin",
                split == Split::train
                    ? "; set data.dir to the folder of the token files"
                    : "; add one, or hold samples back with data.split");
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

Opened open_tokens(const config::DataConfig& config, Split split) {
  const Path folder = require_folder(config, "a folder of token files (*train*.bin)");
  std::vector<Shard> shards;
  for (const auto& file : list_files(folder, split)) {
    shards.emplace_back(file, config.token_type);
  }
  return std::make_unique<Tokens>(std::move(shards), config, split);
}

}  // namespace lockstep::data
