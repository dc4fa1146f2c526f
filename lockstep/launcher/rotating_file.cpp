#include "lockstep/launcher/rotating_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/str.h"

namespace lockstep::launcher {

RotatingFile::RotatingFile(files::Path path, Limits limits)
    : path_(std::move(path)), limits_(limits) {}

bool RotatingFile::append(std::string_view lines) {
  if (missing_bytes_ > 0 && !say_what_is_missing()) return lose(lines);
  while (!lines.empty()) {
    if (!open()) return lose(lines);
    auto piece = lines.substr(0, fitting(lines));
    if (piece.empty()) {
      rotate();
      if (!open()) return lose(lines);
      // The file could not be moved: a log that is too large is better than none.
      piece = size_bytes_ == 0 ? lines.substr(0, fitting(lines)) : lines;
    }
    const auto written = write(piece);
    lines.remove_prefix(written);
    if (written < piece.size()) return lose(lines);
  }
  return true;
}

bool RotatingFile::lose(std::string_view lines) {
  missing_bytes_ += static_cast<std::int64_t>(lines.size());
  return false;
}

bool RotatingFile::say_what_is_missing() {
  if (!open()) return false;
  const auto note = str(torn_ ? "\n" : "", "lockstep: ", missing_bytes_,
                        " bytes are missing here: ", problem_, "\n");
  if (write(note) < note.size()) return false;
  missing_bytes_ = 0;
  return true;
}

// Returns how much of `lines` may go into the file as it is now.
std::size_t RotatingFile::fitting(std::string_view lines) const {
  const auto room = static_cast<std::size_t>(
      std::max<std::int64_t>(0, limits_.rotate_bytes - size_bytes_));
  if (lines.size() <= room) return lines.size();
  const auto last = lines.substr(0, room).rfind('\n');
  if (last != std::string_view::npos) return last + 1;
  if (size_bytes_ > 0) return 0;
  return std::min(lines.find('\n'), lines.size() - 1) + 1;
}

bool RotatingFile::open() {
  if (file_) return true;
  constexpr int kHow = O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC;
  file_ = files::Descriptor(::open(path_.c_str(), kHow, 0644));
  if (!file_) {
    problem_ = std::strerror(errno);
    return false;
  }
  struct stat status {};
  size_bytes_ = ::fstat(file_.get(), &status) == 0 ? status.st_size : 0;
  // Our first line must not continue a line that a crash tore off.
  char last = '\n';
  torn_ = size_bytes_ > 0 && ::pread(file_.get(), &last, 1, size_bytes_ - 1) == 1 &&
          last != '\n';
  if (torn_) write("\n");
  return true;
}

void RotatingFile::rotate() {
  const auto moved = [this](int number) {
    return number == 0 ? path_.string() : str(path_.string(), ".", number);
  };
  // Files that do not exist yet are not moved.
  for (int number = limits_.keep; number > 1; --number) {
    ::rename(moved(number - 1).c_str(), moved(number).c_str());
  }
  const int done = limits_.keep > 0 ? ::rename(moved(0).c_str(), moved(1).c_str())
                                    : ::unlink(path_.c_str());
  if (done != 0 && errno != ENOENT) return;
  file_.reset();
  size_bytes_ = 0;
  torn_ = false;
}

std::size_t RotatingFile::write(std::string_view bytes) {
  std::size_t written = 0;
  while (written < bytes.size()) {
    const auto done =
        ::write(file_.get(), bytes.data() + written, bytes.size() - written);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) {
      problem_ = std::strerror(errno);
      break;
    }
    written += static_cast<std::size_t>(done);
  }
  size_bytes_ += static_cast<std::int64_t>(written);
  if (written > 0) torn_ = bytes[written - 1] != '\n';
  return written;
}

}  // namespace lockstep::launcher
