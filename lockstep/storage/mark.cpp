#include "lockstep/storage/detail/mark.h"

#include <tuple>

#include <sys/stat.h>
#include <time.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/storage/detail/names.h"

namespace lockstep::storage {
namespace {

std::string text_of(Mark mark, const Fingerprint& files) {
  return str(mark == Mark::read ? "read" : "written", "\n", files.text);
}

std::string text_of(const timespec& time) {
  return str(time.tv_sec, ".", time.tv_nsec);
}

bool is_before(const timespec& a, const timespec& b) {
  return std::tie(a.tv_sec, a.tv_nsec) < std::tie(b.tv_sec, b.tv_nsec);
}

// Returns the clock that files get their times from: it moves in steps of some
// milliseconds.
timespec clock_of_files() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return now;
}

}  // namespace

Fingerprint fingerprint(const Path& checkpoint, const Manifest& manifest) {
  Fingerprint result{.text = "", .is_settled = true};
  const auto now = clock_of_files();
  for (const auto& file : manifest.files) {
    struct stat info {};
    if (::stat((checkpoint / file.name).c_str(), &info) != 0) return {};
    // The inode's change time is included, too: it can not be set back.
    result.text +=
        str(file.name, " ", info.st_size, " ", info.st_ino, " ", text_of(info.st_mtim),
            " ", text_of(info.st_ctim), " ", to_hex(file.digest()), "\n");
    result.is_settled = result.is_settled && is_before(info.st_ctim, now);
  }
  return result;
}

Mark read_mark(const Path& checkpoint, const Manifest& manifest) {
  const auto path = checkpoint / kMarkName;
  const auto now = fingerprint(checkpoint, manifest);
  if (now.text.empty() || !is_there(path)) return Mark::none;
  try {
    constexpr std::int64_t kLongest = 64 << 20;
    const auto text = files::read(path, kLongest);
    for (const auto mark : {Mark::read, Mark::written}) {
      if (text == text_of(mark, now)) return mark;
    }
  } catch (const Error&) {  // as good as none
  }
  return Mark::none;
}

void write_mark(FileSystem& files, const Path& checkpoint, const NewMark& mark) {
  if (mark.before.text.empty() || !mark.before.is_settled) return;
  const auto path = checkpoint / kMarkName;
  if (is_there(path)) files.remove(path);
  const auto text = text_of(mark.mark, mark.before);
  const auto file = files.create(path, Caching::through);
  file->write(0, std::as_bytes(std::span(text)));
  file->close();
}

}  // namespace lockstep::storage
