#include <cmath>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/storage/manifest.h"

namespace lockstep::storage {
namespace {

class Check {
 public:
  Check(const Manifest& manifest, const std::string& place)
      : manifest_(manifest), place_(place) {}

  void run() {
    const auto block = manifest_.block_bytes;
    if (block <= 0 || (block & (block - 1)) != 0) {
      refuse("block_bytes ", block, " is no power of two");
    }
    if (manifest_.step < 0) refuse("the step ", manifest_.step, " is negative");
    if (manifest_.world_size < 1) refuse("world_size is ", manifest_.world_size);
    if (manifest_.metric && !std::isfinite(manifest_.metric->value)) {
      refuse("the metric is ", manifest_.metric->value);
    }
    if (manifest_.state.empty() || manifest_.state.front() != '{') {
      refuse("state is not a JSON object");
    }
    std::set<std::string_view> names;
    for (const auto& file : manifest_.files) {
      check_file(file);
      if (!names.insert(file.name).second) refuse("'", file.name, "' is listed twice");
    }
    const std::string* before = nullptr;
    for (const auto& tensor : manifest_.tensors) {
      if (before != nullptr && !(*before < tensor.name)) {
        refuse("tensor '", tensor.name, "' comes twice or out of order");
      }
      before = &tensor.name;
      check_tensor(tensor);
    }
  }

 private:
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    throw Error(Fault::io, place_, ": ", parts...);
  }

  void check_file(const FileRecord& file) const {
    // A name from a manifest becomes a path: it must not lead elsewhere.
    const bool plain = !file.name.empty() && file.name.front() != '.' &&
                       file.name.find('/') == std::string::npos &&
                       file.name.find('\0') == std::string::npos &&
                       file.name != kManifestName;
    if (!plain) refuse("'", file.name, "' cannot be the name of a file");
    if (file.size < 0) refuse("'", file.name, "' has ", file.size, " bytes");
    const auto blocks = file.size / manifest_.block_bytes +
                        (file.size % manifest_.block_bytes != 0 ? 1 : 0);
    if (blocks != static_cast<std::int64_t>(file.blocks.size())) {
      refuse("'", file.name, "' has ", file.blocks.size(), " digests for ", blocks,
             " blocks");
    }
  }

  void check_tensor(const TensorRecord& tensor) const {
    if (tensor.name.empty()) refuse("a tensor has no name");
    const auto count = num_elements(tensor.shape);
    if (!count || !num_bytes(tensor.dtype, *count)) {
      refuse("tensor '", tensor.name, "': ", tensor.dtype, " ", to_text(tensor.shape),
             " is impossible");
    }
    if (!is_order(tensor.order, tensor.shape.size()) ||
        normal(tensor.order) != tensor.order) {
      refuse("tensor '", tensor.name, "': the order ", to_text(tensor.order),
             " is none of ", tensor.shape.size(), " dimensions");
    }
    std::int64_t covered = 0;
    for (const auto& piece : tensor.pieces) {
      check_piece(tensor, piece, *count);
      if (piece.begin != covered) {
        refuse("tensor '", tensor.name, "': elements ", std::min(covered, piece.begin),
               " to ", std::max(covered, piece.begin),
               piece.begin > covered ? " are missing" : " come twice");
      }
      covered += piece.count;
    }
    if (covered != *count) {
      refuse("tensor '", tensor.name, "': elements ", covered, " to ", *count,
             " are missing");
    }
  }

  void check_piece(const TensorRecord& tensor, const PieceRecord& piece,
                   std::int64_t count) const {
    const auto& file = manifest_.files.at(piece.file);
    const auto bytes = piece.count >= 0 && piece.begin >= 0 && piece.count <= count &&
                               piece.begin <= count - piece.count
                           ? num_bytes(tensor.dtype, piece.count)
                           : std::nullopt;
    if (!bytes) {
      refuse("tensor '", tensor.name, "': no piece begins at ", piece.begin,
             " and has ", piece.count, " of ", count, " elements");
    }
    if (piece.offset < 0 || piece.offset > file.size - *bytes) {
      refuse("tensor '", tensor.name, "': ", *bytes, " bytes at ", piece.offset,
             " are not in '", file.name, "', which has ", file.size);
    }
  }

  const Manifest& manifest_;
  const std::string& place_;
};

}  // namespace

void check(const Manifest& manifest, const std::string& place) {
  Check(manifest, place).run();
}

}  // namespace lockstep::storage
