#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/files.h"
#include "lockstep/service/access.h"
#include "lockstep/service/store.h"

namespace lockstep::service {

struct NewUpload {
  std::string name;  // for people: never a path here
  std::string kind;  // the ending that its reader looks at: one of kinds()
  std::int64_t bytes = 0;
  std::string sha256;  // 64 hexadecimal digits
};

struct Upload : NewUpload {
  std::string id;
  std::string user;
  Milliseconds created = 0;
  std::int64_t received = 0;  // the parts so far
  bool complete = false;
};

// A part of a file, and where in the file it begins.
struct UploadPart {
  std::int64_t offset = 0;
  std::string_view bytes;
};

// Files that come in parts. A part follows the one before it; whoever lost the answer
// asks how far it has come and goes on from there. A file counts when all of it is
// there and its digest is the announced one.
//
// Threads: any.
class Uploads {
 public:
  Uploads(Store& store, files::Path folder);

  static const std::vector<std::string>& kinds();

  // Throws Refusal for one that can not be.
  static void check(const NewUpload& upload);
  Upload create(const Identity& who, const NewUpload& upload);
  Upload find(const Identity& who, const std::string& id);
  std::vector<Upload> list(const Identity& who);

  // Takes the next part. Refused::conflict if it does not begin where the
  // last one ended, or the digest of the whole is another one: it begins anew then.
  Upload add_part(const Identity& who, const std::string& id, const UploadPart& part);
  void remove(const Identity& who, const std::string& id);

  // Removes what has been here for an hour and is no upload: a server that was killed
  // in the middle of one, or a change that was taken back, leaves its bytes.
  void remove_strays();

  // Returns the place of a complete file.
  files::Path path_of(const Upload& upload) const;

  std::int64_t bytes_of(const std::string& user);

 private:
  std::optional<Upload> look_up(const std::string& id);
  std::int64_t received(const Upload& upload) const;
  void finish(const Upload& upload);

  Store& store_;
  const files::Path folder_;
};

}  // namespace lockstep::service
