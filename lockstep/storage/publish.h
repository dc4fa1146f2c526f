#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/storage/file_system.h"
#include "lockstep/storage/manifest.h"

// How a checkpoint comes to be. Rank 0 begins; then every rank writes its files; rank 0
// collects the records and publishes. Until then nothing that a reader looks at has
// changed, whenever a process ends or the power goes.
namespace lockstep::storage {

// What one rank writes of a tensor.
struct PieceToWrite {
  std::string name;
  std::string dtype;
  Shape shape;  // of the whole tensor
  Order order;  // in which its elements are counted
  std::int64_t begin = 0;
  std::int64_t count = 0;

  std::int64_t num_bytes() const;
  friend bool operator==(const PieceToWrite&, const PieceToWrite&) = default;
};

// What rank 0 has to know of a file that a rank wrote.
struct WrittenFile {
  FileRecord file;
  std::vector<TensorRecord>
      tensors;  // each with the pieces of this file; Piece::file 0

  std::string to_json() const;
  static WrittenFile from_json(std::string_view text);  // Fault::io
};

struct WriteOptions {
  std::int64_t block_bytes = kBlockBytes;  // a power of two
  Caching caching = Caching::direct;
  std::vector<Digest> digests;  // of the blocks, where the caller knows them already
  // Before every large write. What it throws ends the writing.
  std::function<void()> may_go_on;
};

// The safetensors file that a rank adds to a save. Its bytes are gathered in memory
// that is laid out as the file is, its image, so that the disk takes them from there.
class RankFile {
 public:
  // `name` is for example "rank_0.safetensors".
  RankFile(std::string name, std::vector<PieceToWrite> pieces);

  // In the order in which they are in the file: wide dtypes first, then by name. One
  // begins where the one before it ends.
  const std::vector<PieceToWrite>& pieces() const noexcept { return pieces_; }
  std::int64_t offset_of(std::size_t piece) const { return offsets_.at(piece); }
  // What the file begins with.
  std::string_view header() const noexcept { return header_; }

  std::int64_t num_bytes() const noexcept { return num_bytes_; }
  // A multiple of kDirectAlignment, as the address of an image is; what is behind
  // num_bytes() does not get into the file.
  std::int64_t image_bytes() const noexcept;

  // Writes, syncs and closes. The image is hashed on the way, unless its digests are
  // known, and stays as it is until this returns.
  WrittenFile write(FileSystem& files, const Path& directory, Bytes image,
                    WriteOptions options = {}) const;

 private:
  std::string name_;
  std::vector<PieceToWrite> pieces_;
  std::vector<std::int64_t> offsets_;
  std::string header_;
  std::int64_t num_bytes_ = 0;
};

// "step_120" in `checkpoints`; ".step_120.partial" while it is being written.
Path step_directory(const Path& checkpoints, std::int64_t step);
Path partial_directory(const Path& checkpoints, std::int64_t step);

// Makes the directory for the ranks' files, empty, and its parent if need be; what an
// earlier attempt at this step left is removed. No rank may write before.
Path begin_save(FileSystem& files, const Path& checkpoints, std::int64_t step);

// From the ranks' files a checkpoint: `head` is a manifest without files and tensors.
// Fault::internal if the files do not cover every tensor exactly once. Then manifest,
// rename, and the links `last` and `best`. A checkpoint of the same step is replaced:
// until the new one stands there, the old one does. Returns its directory.
Path publish(FileSystem& files, const Path& checkpoints, Manifest head,
             const std::vector<WrittenFile>& written);

// After a failure on any rank: removes what was written. Never throws; what can not be
// removed now is left to clean_up().
void abandon_save(FileSystem& files, const Path& checkpoints,
                  std::int64_t step) noexcept;

}  // namespace lockstep::storage
