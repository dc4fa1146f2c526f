#include "lockstep/server/sse.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/text.h"

namespace lockstep::server {
namespace {

constexpr std::size_t kPieceBytes = 128 << 10;

// Opened anew at every look: a rotated log is another file of the same name.
files::Descriptor open_for_reading(const files::Path& path) {
  return files::Descriptor(
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
}

class FileTail : public Stream {
 public:
  explicit FileTail(TailOptions options) : options_(std::move(options)) {}

  std::string next() override {
    // Asked first: what is written between the two looks is not missed.
    const bool last = options_.is_over();
    const auto file = open_for_reading(options_.file);
    struct stat info {};
    if (!file || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
      over_ = last;
      return first();
    }
    if (info.st_size < options_.offset) options_.offset = 0;
    buffer_.resize(kPieceBytes);
    const auto got =
        ::pread(file.get(), buffer_.data(), buffer_.size(), options_.offset);
    if (got <= 0) {
      over_ = last;
      return first();
    }
    buffer_.resize(static_cast<std::size_t>(got));
    auto end = buffer_.rfind('\n');
    if (end == std::string::npos) {
      // A line that is longer than a piece is sent in pieces.
      if (buffer_.size() < kPieceBytes && !last) return first();
      end = buffer_.size() - 1;
    }
    return first() + events(std::string_view(buffer_).substr(0, end + 1));
  }

  bool is_over() const override { return over_; }
  std::string ping() const override { return ": ping\n\n"; }

 private:
  // Tells the client how long to wait before it connects again.
  std::string first() { return std::exchange(begun_, true) ? "" : "retry: 2000\n\n"; }

  std::string events(std::string_view lines) {
    std::string text;
    while (!lines.empty()) {
      const auto end = std::min(lines.find('\n'), lines.size() - 1);
      auto line = lines.substr(0, end + 1);
      lines.remove_prefix(line.size());
      options_.offset += static_cast<std::int64_t>(line.size());
      while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) {
        line.remove_suffix(1);
      }
      text += str("id: ", options_.offset, "\nevent: ", options_.event, "\ndata: ");
      // A progress line goes back with \r, which would end the field.
      for (const char c : line) text += c == '\r' ? ' ' : c;
      text += "\n\n";
    }
    return text;
  }

  TailOptions options_;
  std::string buffer_;
  bool over_ = false;
  bool begun_ = false;
};

class FileBytes : public Stream {
 public:
  explicit FileBytes(const files::Path& path) : file_(open_for_reading(path)) {
    if (!file_) files::fail("open", path, errno);
  }

  std::string next() override {
    std::string piece(kPieceBytes, '\0');
    const auto got = ::read(file_.get(), piece.data(), piece.size());
    over_ = got <= 0;
    piece.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return piece;
  }

  bool is_over() const override { return over_; }

 private:
  files::Descriptor file_;
  bool over_ = false;
};

}  // namespace

std::unique_ptr<Stream> tail_events(TailOptions options) {
  return std::make_unique<FileTail>(std::move(options));
}

std::unique_ptr<Stream> file_bytes(const files::Path& file) {
  return std::make_unique<FileBytes>(file);
}

}  // namespace lockstep::server
