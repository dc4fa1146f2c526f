#pragma once

#include <cstdint>
#include <memory>
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
};

// A safetensors file of a save, written from begin to end. It is hashed on the way, and
// the disk works while the caller brings the next bytes.
//
// Threads:  one at a time; it has one of its own.
// Lifetime: destroyed before finish() it leaves an incomplete file, which nobody reads.
class RankFile {
 public:
  // `name` is for example "rank_0.safetensors".
  RankFile(FileSystem& files, const Path& directory, const std::string& name,
           std::vector<PieceToWrite> pieces, WriteOptions options = {});
  ~RankFile();
  RankFile(RankFile&&) noexcept;

  // In the order in which their bytes are to come: wide dtypes first, then by name.
  const std::vector<PieceToWrite>& pieces() const noexcept;

  // The next bytes, however they are cut. They may be changed when this returns.
  void append(Bytes bytes);

  // All bytes are there and synced.
  WrittenFile finish();

  std::int64_t buffer_bytes() const noexcept;  // what it holds in memory

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
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
