#include "lockstep/server/sse.h"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/clock.h"
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
    auto text = new_lines(/*is_last=*/false);
    if (text.empty() && options_.is_over()) {
      // What was written before that is not missed.
      text = new_lines(/*is_last=*/true);
      over_ = text.empty();
    }
    return first() + text;
  }

  bool is_over() const override { return over_; }
  std::string ping() const override { return ": ping\n\n"; }

 private:
  // Tells the client how long to wait before it connects again.
  std::string first() { return std::exchange(begun_, true) ? "" : "retry: 2000\n\n"; }

  // A look at a file that has not grown costs one call, and there are many looks.
  bool is_quiet() const {
    struct stat info {};
    return ::lstat(options_.file.c_str(), &info) != 0 ||
           info.st_size == options_.offset;
  }

  // Returns the events of the next lines; `is_last`: a line without an end is one, too.
  std::string new_lines(bool is_last) {
    if (is_quiet()) return "";
    const auto file = options_.open ? options_.open() : open_for_reading(options_.file);
    struct stat info {};
    if (!file || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return "";
    if (info.st_size < options_.offset) options_.offset = 0;
    const auto more = static_cast<std::size_t>(info.st_size - options_.offset);
    if (more == 0) return "";
    std::string bytes(std::min(more, kPieceBytes), '\0');
    const auto got = ::pread(file.get(), bytes.data(), bytes.size(), options_.offset);
    if (got <= 0) return "";
    bytes.resize(static_cast<std::size_t>(got));
    if (!std::exchange(at_line_, true) && is_inside_line(file.get())) {
      // Whoever begins in the middle of a line gets the next one first.
      const auto rest = std::min(bytes.find('\n'), bytes.size() - 1) + 1;
      options_.offset += static_cast<std::int64_t>(rest);
      return "";
    }
    auto end = bytes.rfind('\n');
    if (end == std::string::npos) {
      // A line that is longer than a piece is sent in pieces.
      if (bytes.size() < kPieceBytes && !is_last) return "";
      end = bytes.size() - 1;
    }
    return events(std::string_view(bytes).substr(0, end + 1));
  }

  bool is_inside_line(int file) const {
    char before = '\n';
    return options_.offset > 0 && ::pread(file, &before, 1, options_.offset - 1) == 1 &&
           before != '\n';
  }

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
  bool over_ = false;
  bool begun_ = false;
  bool at_line_ = false;  // the offset is known to be where a line begins
};

class FileBytes : public Stream {
 public:
  explicit FileBytes(files::Descriptor file) : file_(std::move(file)) {}

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

class AllowedStream : public Stream {
 public:
  AllowedStream(std::unique_ptr<Stream> stream, std::function<bool()> is_allowed)
      : stream_(std::move(stream)), is_allowed_(std::move(is_allowed)) {}

  std::string next() override {
    look();
    return allowed_ ? stream_->next() : "";
  }

  bool is_over() const override { return !allowed_ || stream_->is_over(); }
  std::string ping() const override { return stream_->ping(); }

 private:
  void look() {
    constexpr std::chrono::milliseconds kEvery{500};
    const auto now = Clock::system().now();
    if (now - looked_ < kEvery) return;
    looked_ = now;
    allowed_ = is_allowed_();
  }

  const std::unique_ptr<Stream> stream_;
  const std::function<bool()> is_allowed_;
  SteadyTime looked_ = Clock::system().now();
  bool allowed_ = true;
};

}  // namespace

std::unique_ptr<Stream> while_allowed(std::unique_ptr<Stream> stream,
                                      std::function<bool()> is_allowed) {
  return std::make_unique<AllowedStream>(std::move(stream), std::move(is_allowed));
}

std::unique_ptr<Stream> tail_events(TailOptions options) {
  return std::make_unique<FileTail>(std::move(options));
}

std::unique_ptr<Stream> file_bytes(files::Descriptor file) {
  return std::make_unique<FileBytes>(std::move(file));
}

}  // namespace lockstep::server
