#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/storage/file_system.h"
#include "lockstep/storage/manifest.h"

// A checkpoint is written by all ranks. Rank 0 begins; then every rank writes its
// files; rank 0 collects the records and publishes. Until then nothing that a reader
// looks at has changed, whenever a process ends or the power goes.
namespace lockstep::storage {

// The part of a tensor that one rank writes.
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

// The record of a file that a rank wrote, for rank 0.
struct WrittenFile {
  FileRecord file;
  std::vector<TensorRecord>
      tensors;  // each with the pieces of this file; PieceRecord::file 0

  std::string to_json() const;
  static WrittenFile from_json(std::string_view text);  // Fault::io
};

struct WriteOptions {
  std::int64_t block_bytes = kBlockBytes;  // a power of two
  Caching caching = Caching::direct;
  std::vector<Digest> digests;  // of the blocks, where the caller knows them already
  // Called before every large write. An exception of it ends the writing.
  std::function<void()> may_go_on;
};

// The safetensors file that a rank adds to a save. Its bytes are gathered in memory
// that is laid out as the file is, its image, so that the disk takes them from there.
class RankFile {
 public:
  // `name` is for example "rank_0.safetensors".
  RankFile(std::string name, std::vector<PieceToWrite> pieces);

  // Returns the pieces in the order of the file: wide dtypes first, then by name. Each
  // begins where the one before it ends.
  const std::vector<PieceToWrite>& pieces() const noexcept { return pieces_; }
  std::int64_t offset_of(std::size_t piece) const { return offsets_.at(piece); }
  // Returns the bytes that the file begins with.
  std::string_view header() const noexcept { return header_; }

  std::int64_t num_bytes() const noexcept { return num_bytes_; }
  // Returns a multiple of kDirectAlignment, as the address of an image is; bytes behind
  // num_bytes() do not get into the file.
  std::int64_t image_bytes() const noexcept;

  // Writes, syncs and closes the file. The image is hashed on the way, unless its
  // digests are known, and stays as it is until this returns.
  struct Image {
    Bytes bytes;
    WriteOptions options = {};
  };
  WrittenFile write(FileSystem& files, const Path& directory, Image of_file) const;

 private:
  std::string name_;
  std::vector<PieceToWrite> pieces_;
  std::vector<std::int64_t> offsets_;
  std::string header_;
  std::int64_t num_bytes_ = 0;
};

// Returns "step_120" in `checkpoints`; ".step_120.partial" while it is being written.
Path step_directory(const Path& checkpoints, std::int64_t step);
Path partial_directory(const Path& checkpoints, std::int64_t step);

// Makes the directory for the ranks' files, empty, and its parent if need be; leftovers
// of an earlier attempt at this step are removed. No rank may write before.
Path begin_save(FileSystem& files, const Path& checkpoints, std::int64_t step);

// The files of a save that all ranks have written, and a manifest without files and
// tensors.
struct WrittenSave {
  Manifest head;
  std::vector<WrittenFile> written;
};

// Makes a checkpoint from the ranks' files. Fault::internal if the files do not cover
// every tensor exactly once. Then it writes the manifest, renames, and sets the links
// `last` and `best`. A checkpoint of the same step is replaced: until the new one
// stands there, the old one does. Returns its directory.
Path publish(FileSystem& files, const Path& checkpoints, WrittenSave save);

// After a failure on any rank: removes the written files. Never throws; files that can
// not be removed now are left to clean_up().
void abandon_save(FileSystem& files, const Path& checkpoints,
                  std::int64_t step) noexcept;

}  // namespace lockstep::storage
