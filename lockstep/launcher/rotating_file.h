#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/base/files.h"

namespace lockstep::launcher {

// A log that is appended to and moved away before it grows too large: the file itself
// has the newest lines, then come <path>.1, <path>.2 and so on. The files one after the
// other, oldest first, are what was appended.
//
// It never throws: a log is a help, not the point. Bytes that could not be written are
// counted, and the log says how much it lacks as soon as it can be written again.
class RotatingFile {
 public:
  struct Limits {
    std::int64_t rotate_bytes;  // no file gets larger, unless by a single long line
    int keep;                   // moved files; older ones are removed
  };

  // Nothing is opened before something is written.
  RotatingFile(files::Path path, Limits limits);

  // Cuts a full file after a newline, if there is one. Returns false if not all of it
  // could be written: problem() says why.
  bool append(std::string_view lines);

  const std::string& problem() const noexcept { return problem_; }

 private:
  bool open();
  void rotate();
  std::size_t fitting(std::string_view lines) const;
  std::size_t write(std::string_view bytes);
  bool lose(std::string_view lines);
  bool say_what_is_missing();

  files::Path path_;
  Limits limits_;
  files::Descriptor file_;
  std::int64_t size_bytes_ = 0;
  std::int64_t missing_bytes_ = 0;
  bool torn_ = false;  // the last line of the file has no newline
  std::string problem_;
};

}  // namespace lockstep::launcher
