#include "lockstep/launcher/detail/lines.h"

#include <algorithm>
#include <cstring>

namespace lockstep::launcher::detail {
namespace {

constexpr std::size_t kReadAtOnce = 64 << 10;

// Returns the end of the last line: behind a \n, or behind a \r that is followed by
// something else; 0 if there is none.
std::size_t end_of_lines(std::string_view bytes) {
  const void* newline = ::memrchr(bytes.data(), '\n', bytes.size());
  const std::size_t end =
      newline == nullptr ? 0 : static_cast<const char*>(newline) - bytes.data() + 1;
  if (bytes.size() < 2) return end;
  // The last byte may be the first half of \r\n.
  const auto back =
      bytes.substr(end, bytes.size() - 1 - std::min(end, bytes.size() - 1)).rfind('\r');
  return back == std::string_view::npos ? end : end + back + 1;
}

}  // namespace

std::span<char> LineBuffer::room() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (buffer_.size() < end_ + kReadAtOnce) buffer_.resize(end_ + kReadAtOnce);
  return std::span(buffer_).subspan(end_);
}

std::string_view LineBuffer::ready() const {
  const auto all = rest();
  const auto end = end_of_lines(all);
  if (end > 0) return all.substr(0, end);
  // A \r at the end stays: its \n may come.
  if (all.size() < kLongestLine) return {};
  return all.substr(0, all.size() - (all.back() == '\r' ? 1 : 0));
}

std::string Joint::prefixed(const void* stream, std::string_view piece,
                            std::string_view prefix) const {
  std::string text;
  text.reserve(piece.size() + piece.size() / 8 + prefix.size());
  bool at_begin = !(open_ == stream && in_line_);
  // Looking for one byte is several times faster than looking for two.
  const bool has_bars = piece.find('\r') != std::string_view::npos;
  while (!piece.empty()) {
    if (at_begin) text += prefix;
    at_begin = true;
    std::size_t end = has_bars ? piece.find_first_of("\r\n") : piece.find('\n');
    if (end == std::string_view::npos) end = piece.size() - 1;
    if (piece.substr(end, 2) == "\r\n") ++end;
    text += piece.substr(0, end + 1);
    piece.remove_prefix(end + 1);
  }
  return text;
}

void Joint::wrote(const void* stream, std::string_view piece) {
  open_ = piece.back() == '\n' ? nullptr : stream;
  in_line_ = piece.back() != '\n' && piece.back() != '\r';
}

}  // namespace lockstep::launcher::detail
