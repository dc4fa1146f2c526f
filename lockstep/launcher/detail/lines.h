#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launcher::detail {

// A line that is longer is passed on in pieces.
inline constexpr std::size_t kLongestLine = 64 << 10;

// Cuts a stream of bytes into pieces that are written at once: whole lines, where \r (a
// progress bar) ends one as well, or the part that has come of a line that is too long.
class LineBuffer {
 public:
  // Returns where to put the next bytes; filled() says how many there were.
  std::span<char> room();
  void filled(std::size_t bytes) { end_ += bytes; }

  // Returns the piece that is ready, if any; taken() removes it.
  std::string_view ready() const;
  // Returns all that is left, when the stream has ended.
  std::string_view rest() const { return {buffer_.data() + begin_, end_ - begin_}; }
  void taken(std::size_t bytes) { begin_ += bytes; }

 private:
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;
};

// The state of one place (a log, a terminal) with several streams: which is in the
// middle of a line, so that a piece of another stream begins a new one.
class Joint {
 public:
  // Returns whether a newline has to be written before `stream` may write.
  bool interrupts(const void* stream) const {
    return open_ != nullptr && open_ != stream;
  }

  bool is_open(const void* stream) const { return open_ == stream; }

  // Returns `piece` as it is to be written: with `prefix` where a line begins.
  std::string prefixed(const void* stream, std::string_view piece,
                       std::string_view prefix) const;

  // Records that `piece` was written.
  void wrote(const void* stream, std::string_view piece);

 private:
  const void* open_ = nullptr;  // whose last piece did not end with a newline
  bool in_line_ = false;        // nor with \r
};

}  // namespace lockstep::launcher::detail
