#include "lockstep/tokenizer/token_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/leftovers.h"

namespace lockstep::tokenizer {
namespace {

using Path = std::filesystem::path;
using Header = std::array<std::int32_t, 256>;

constexpr std::size_t kSmallVocabulary = 65536;

struct Format {
  std::int32_t magic = 0;
  std::int32_t version = 0;
};
constexpr Format kFormat16 = {20240520, 1};
constexpr Format kFormat32 = {20240801, 7};

Path shard_path(const Path& path, std::size_t number) {
  if (number == 0) return path;
  return path.parent_path() / fmt::format("{}_{:06}{}", path.stem().string(), number,
                                          path.extension().string());
}

std::string_view bytes_of(const Header& header) {
  return {reinterpret_cast<const char*>(header.data()), sizeof header};
}

}  // namespace

TokenWriter::TokenWriter(Options options) : options_(std::move(options)) {
  options_.path = files::replaceable(options_.path);
  if (options_.path.has_parent_path()) {
    std::error_code error;
    std::filesystem::create_directories(options_.path.parent_path(), error);
    if (error) files::fail("write", options_.path, error.value());
  }
  open_shard();
}

TokenWriter::~TokenWriter() {
  for (const auto& shard : shards_) {
    if (!shard.hidden.empty()) ::unlink(shard.hidden.c_str());
  }
}

void TokenWriter::open_shard() {
  const auto path = shard_path(options_.path, shards_.size());
  const Path folder = path.has_parent_path() ? path.parent_path() : Path(".");
  files::sweep_leftovers(folder);
  auto hidden =
      (folder / str(".", path.filename().string(), ".", files::owner_mark(), ".XXXXXX"))
          .string();
  files::Descriptor file(::mkostemp(hidden.data(), O_CLOEXEC));
  if (!file) files::fail("write", path, errno);
  shards_.push_back({std::move(file), path, hidden, 0});
  files::write_all(shards_.back().file.get(), bytes_of({}), path);
}

void TokenWriter::write(std::span<const Token> tokens) {
  constexpr std::size_t kMost = std::size_t{1} << 20;
  const bool small = options_.vocabulary_size <= kSmallVocabulary;
  while (!tokens.empty()) {
    if (shards_.back().count == options_.most_tokens) open_shard();
    auto& shard = shards_.back();
    const auto fits = static_cast<std::size_t>(options_.most_tokens - shard.count);
    const auto part = tokens.first(std::min({tokens.size(), fits, kMost}));
    const std::size_t width = small ? sizeof(std::uint16_t) : sizeof(Token);
    buffer_.resize(part.size() * width);
    for (std::size_t i = 0; i < part.size(); ++i) {
      // The low bytes come first on every machine that CUDA runs on.
      std::memcpy(buffer_.data() + i * width, &part[i], width);
    }
    files::write_all(shard.file.get(), {buffer_.data(), buffer_.size()}, shard.path);
    shard.count += static_cast<std::int64_t>(part.size());
    count_ += static_cast<std::int64_t>(part.size());
    tokens = tokens.subspan(part.size());
  }
}

void TokenWriter::close(Shard& shard) {
  const auto& format =
      options_.vocabulary_size <= kSmallVocabulary ? kFormat16 : kFormat32;
  Header header{};
  header[0] = format.magic;
  header[1] = format.version;
  header[2] = static_cast<std::int32_t>(shard.count);
  const int fd = shard.file.get();
  if (::lseek(fd, 0, SEEK_SET) != 0) files::fail("write", shard.path, errno);
  files::write_all(fd, bytes_of(header), shard.path);
  if (::fchmod(fd, 0644) != 0) files::fail("write", shard.path, errno);
  if (::fsync(fd) != 0) files::fail("sync", shard.path, errno);
  shard.file.reset();
}

std::vector<Path> TokenWriter::publish() {
  for (auto& shard : shards_) close(shard);
  std::vector<Path> paths;
  for (auto& shard : shards_) {
    if (::rename(shard.hidden.c_str(), shard.path.c_str()) != 0) {
      files::fail("rename to", shard.path, errno);
    }
    shard.hidden.clear();
    paths.push_back(shard.path);
  }
  // Those of an earlier, longer run would be read as a part of this one.
  for (auto next = shards_.size();; ++next) {
    if (!std::filesystem::remove(shard_path(options_.path, next))) break;
  }
  const auto& path = options_.path;
  files::sync_directory(path.has_parent_path() ? path.parent_path() : Path("."));
  return paths;
}

}  // namespace lockstep::tokenizer
