#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/storage/digest.h"
#include "lockstep/storage/layout.h"

// The content of a checkpoint and its place. docs/checkpoint_format.md describes the
// file.
namespace lockstep::storage {

// The value of "format" in manifest.json. A reader refuses a newer one.
inline constexpr int kManifestFormat = 1;
inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr std::int64_t kBlockBytes = 4 << 20;

struct FileRecord {
  std::string name;  // in the directory of the checkpoint
  std::int64_t size = 0;
  std::vector<Digest> blocks;  // of every block_bytes of it, the last may be shorter

  Digest digest() const { return digest_of(blocks); }
};

// The elements [begin, begin + count) of a tensor, counted in its order, at `offset`
// bytes of a file.
struct PieceRecord {
  std::size_t file = 0;  // of Manifest::files
  std::int64_t begin = 0;
  std::int64_t count = 0;
  std::int64_t offset = 0;
};

// A logical tensor. Its pieces cover it exactly once.
struct TensorRecord {
  std::string name;
  std::string dtype;
  Shape shape;
  Order order;  // in which elements are counted and stored; empty: row-major
  std::vector<PieceRecord> pieces;  // by `begin`

  std::int64_t num_elements() const;
  std::int64_t num_bytes() const;
};

// The metric that decides which checkpoint is the best. Finite.
struct WatchedMetric {
  std::string name;
  double value = 0;
  bool larger_is_better = false;

  bool better_than(const WatchedMetric& other) const {
    return larger_is_better ? value > other.value : value < other.value;
  }
};

struct Manifest {
  std::int64_t step = 0;
  std::string time;  // iso_time()
  std::int64_t world_size = 1;
  std::optional<WatchedMetric> metric;
  std::string state = "{}";  // a JSON object: everything that is no tensor
  std::string config;        // as config.yaml has it
  std::map<std::string, std::string> versions;
  std::int64_t block_bytes = kBlockBytes;
  std::vector<FileRecord> files;
  std::vector<TensorRecord> tensors;  // by name

  const TensorRecord* find(std::string_view name) const;
  Digest config_digest() const { return digest_of(std::string_view(config)); }
  std::int64_t total_bytes() const;  // of the files
};

// Returns the name that a piece has in its safetensors file: that of the tensor if it
// is all of it in row-major order, else "name[begin:end]".
std::string entry_name(const TensorRecord& tensor, const PieceRecord& piece);

// Throws Fault::io, beginning with `place`, unless every tensor is covered exactly
// once, every piece lies in its file, names are unique and plain, and numbers do not
// overflow.
void check(const Manifest& manifest, const std::string& place);

// Returns the text of manifest.json: the first line holds the digest of all that
// follows.
std::string to_text(const Manifest& manifest);

// Reads the text of to_text(), with check(). Throws Fault::io, beginning with `place`,
// for anything that to_text() did not write; Fault::config for a newer format.
Manifest manifest_from_text(std::string_view text, const std::string& place);

}  // namespace lockstep::storage
