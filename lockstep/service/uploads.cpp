#include "lockstep/service/uploads.h"

#include <algorithm>
#include <cerrno>
#include <chrono>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/text.h"
#include "lockstep/service/detail/one_line.h"
#include "lockstep/service/refusal.h"
#include "lockstep/service/secrets.h"

namespace lockstep::service {
namespace {

constexpr std::size_t kLongestFileName = 200;

bool is_digest(std::string_view text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

Upload upload_of(const Statement& row) {
  Upload upload;
  upload.id = row.text(0);
  upload.user = row.text(1);
  // The name is kept as "kind/name".
  const auto name = row.text(2);
  const auto slash = name.find('/');
  upload.kind = name.substr(0, slash);
  upload.name = slash == std::string::npos ? "" : name.substr(slash + 1);
  upload.bytes = row.integer(3);
  upload.sha256 = row.text(4);
  upload.created = row.integer(5);
  upload.complete = row.integer(6) != 0;
  return upload;
}

constexpr const char* kSelectFile =
    "SELECT id, user, name, size, sha256, created, complete FROM files WHERE id = ?";

std::string digest_of(const files::Path& path) {
  const files::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file) files::fail("open", path, errno);
  Sha256 hash;
  std::vector<char> buffer(1 << 20);
  while (true) {
    const auto got = ::read(file.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) files::fail("read", path, errno);
    if (got == 0) return hash.hex();
    hash.add({buffer.data(), static_cast<std::size_t>(got)});
  }
}

}  // namespace

Uploads::Uploads(Store& store, files::Path folder)
    : store_(store), folder_(std::move(folder)) {}

const std::vector<std::string>& Uploads::kinds() {
  static const std::vector<std::string> kKinds{"jsonl",    "txt",  "bin", "safetensors",
                                               "tiktoken", "json", "pt",  "csv",
                                               "tsv",      "npy",  "npz"};
  return kKinds;
}

files::Path Uploads::path_of(const Upload& upload) const {
  // Both parts are ours: a random id, and a word of a fixed list.
  return folder_ / upload.id / str("data.", upload.kind);
}

std::int64_t Uploads::received(const Upload& upload) const {
  if (upload.complete) return upload.bytes;
  struct stat info {};
  const auto path = path_of(upload);
  return ::lstat(path.c_str(), &info) == 0 ? static_cast<std::int64_t>(info.st_size)
                                           : 0;
}

void Uploads::check(const NewUpload& upload) {
  if (std::find(kinds().begin(), kinds().end(), upload.kind) == kinds().end()) {
    throw Refusal(Refused::invalid, "kind: '", upload.kind.substr(0, 20),
                  "' is not one of ", text::join(kinds(), ", "));
  }
  if (!is_digest(upload.sha256)) {
    throw Refusal(Refused::invalid,
                  "sha256: 64 hexadecimal digits in lower case (sha256sum FILE)");
  }
  if (upload.name.size() > kLongestFileName || text::first_invalid_utf8(upload.name)) {
    throw Refusal(Refused::invalid, "name: at most ", kLongestFileName,
                  " bytes of UTF-8");
  }
  if (has_control_characters(upload.name)) {
    throw Refusal(Refused::invalid, "name: no control characters");
  }
}

Upload Uploads::create(const Identity& who, const NewUpload& upload) {
  check(upload);
  Upload made;
  static_cast<NewUpload&>(made) = upload;
  made.id = "file-" + random_hex(8);
  made.user = who.user;
  made.created = store_.now();
  std::filesystem::create_directories(folder_ / made.id);
  std::filesystem::permissions(folder_ / made.id, std::filesystem::perms::owner_all);
  store_.transaction([&] {
    add_user(store_, who.user);
    store_.database()
        .prepare(
            "INSERT INTO files (id, user, name, size, sha256, created) VALUES (?, "
            "?, ?, ?, ?, ?)")
        .bind(made.id)
        .bind(made.user)
        .bind(made.kind + "/" + made.name)
        .bind(made.bytes)
        .bind(made.sha256)
        .bind(made.created)
        .run();
  });
  return made;
}

std::optional<Upload> Uploads::look_up(const std::string& id) {
  const std::lock_guard lock(store_.mutex());
  auto found = store_.database().prepare(kSelectFile);
  found.bind(id);
  if (!found.step()) return std::nullopt;
  return upload_of(found);
}

Upload Uploads::find(const Identity& who, const std::string& id) {
  auto upload = look_up(id);
  if (!upload || !who.may_see(upload->user)) {
    throw Refusal(Refused::unknown, "there is no such file");
  }
  upload->received = received(*upload);
  return *upload;
}

std::vector<Upload> Uploads::list(const Identity& who) {
  std::vector<Upload> all;
  const std::lock_guard lock(store_.mutex());
  auto found = store_.database().prepare(
      "SELECT id, user, name, size, sha256, created, complete FROM files ORDER BY "
      "created DESC");
  while (found.step()) {
    auto upload = upload_of(found);
    if (!who.may_see(upload.user)) continue;
    upload.received = received(upload);
    all.push_back(std::move(upload));
  }
  return all;
}

Upload Uploads::add_part(const Identity& who, const std::string& id,
                         const UploadPart& part) {
  const auto& [offset, bytes] = part;
  auto upload = find(who, id);
  if (!who.may_change(upload.user)) {
    throw Refusal(Refused::not_allowed, "a viewer may not upload");
  }
  if (upload.complete) throw Refusal(Refused::conflict, "the file is complete");
  const auto path = path_of(upload);
  const files::Descriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) files::fail("open", path, errno);
  // Two parts at a time would both find the same end.
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    throw Refusal(Refused::conflict, "another part of this file is on its way");
  }
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) files::fail("look at", path, errno);
  if (offset != info.st_size) {
    throw Refusal(Refused::conflict, "offset: the parts so far end at ", info.st_size,
                  "; go on from there");
  }
  // Without bytes only what has all of them is completed: the server may have been
  // killed before it could.
  if (bytes.empty() && offset != upload.bytes) {
    throw Refusal(Refused::invalid, "body: is empty");
  }
  if (offset + static_cast<std::int64_t>(bytes.size()) > upload.bytes) {
    throw Refusal(Refused::too_large, "the file was announced with ", upload.bytes,
                  " bytes");
  }
  if (::lseek(file.get(), offset, SEEK_SET) != offset) files::fail("seek", path, errno);
  try {
    files::write_all(file.get(), bytes, path);
  } catch (const Error&) {
    // A part that is half there would shift all that follow.
    static_cast<void>(::ftruncate(file.get(), offset) == 0);
    throw;
  }
  ::fdatasync(file.get());
  upload.received = offset + static_cast<std::int64_t>(bytes.size());
  if (upload.received == upload.bytes) {
    finish(upload);
    upload.complete = true;
  }
  return upload;
}

void Uploads::finish(const Upload& upload) {
  const auto path = path_of(upload);
  if (digest_of(path) != upload.sha256) {
    static_cast<void>(::truncate(path.c_str(), 0) == 0);
    throw Refusal(Refused::conflict,
                  "the SHA-256 of the file is not the announced one; it was dropped, "
                  "begin again at offset 0");
  }
  store_.transaction([&] {
    store_.database()
        .prepare("UPDATE files SET complete = 1 WHERE id = ?")
        .bind(upload.id)
        .run();
  });
}

void Uploads::remove(const Identity& who, const std::string& id) {
  const auto upload = find(who, id);
  if (!who.may_change(upload.user)) {
    throw Refusal(Refused::not_allowed, "a viewer may not remove files");
  }
  store_.transaction([&] {
    store_.database().prepare("DELETE FROM files WHERE id = ?").bind(id).run();
  });
  std::error_code ignored;
  std::filesystem::remove_all(folder_ / upload.id, ignored);
}

void Uploads::remove_strays() {
  constexpr std::chrono::hours kPatience{1};
  std::error_code ignored;
  std::vector<files::Path> strays;
  for (std::filesystem::directory_iterator it(folder_, ignored), end; it != end;
       it.increment(ignored)) {
    const auto changed = std::filesystem::last_write_time(it->path(), ignored);
    const auto age = std::filesystem::file_time_type::clock::now() - changed;
    if (!ignored && age > kPatience && !look_up(it->path().filename().string())) {
      strays.push_back(it->path());
    }
  }
  for (const auto& stray : strays) std::filesystem::remove_all(stray, ignored);
}

std::int64_t Uploads::bytes_of(const std::string& user) {
  const std::lock_guard lock(store_.mutex());
  auto sum = store_.database().prepare("SELECT SUM(size) FROM files WHERE user = ?");
  sum.bind(user);
  return sum.step() ? sum.integer(0) : 0;
}

}  // namespace lockstep::service
