#include <algorithm>
#include <cerrno>
#include <set>

#include <sys/stat.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/in_parallel.h"
#include "lockstep/storage/catalog.h"
#include "lockstep/storage/detail/blocks.h"
#include "lockstep/storage/detail/input_file.h"
#include "lockstep/storage/detail/mark.h"
#include "lockstep/storage/detail/names.h"
#include "lockstep/storage/safetensors.h"

namespace lockstep::storage {
namespace {

constexpr std::int64_t kManifestLimit = 256 << 20;

// Returns whether it exists, where that can be told: a disk that does not answer says
// nothing about a checkpoint.
bool is_found(const Path& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0) return true;
  if (errno == ENOENT || errno == ENOTDIR) return false;
  files::fail("look at", path, errno);
}

Manifest read_manifest(const Path& checkpoint) {
  const auto path = checkpoint / kManifestName;
  if (!is_found(checkpoint)) {
    throw Error(Fault::io, "there is no checkpoint '", checkpoint.string(), "'");
  }
  if (!is_found(path)) {
    throw Error(Fault::io, checkpoint.string(), ": it has no ", kManifestName,
                ", so it is not a whole checkpoint");
  }
  return manifest_from_text(files::read(path, kManifestLimit), path.string());
}

void check_size(const Path& path, const FileRecord& file) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) files::fail("look at", path, error.value());
  if (static_cast<std::int64_t>(size) != file.size) {
    throw Error(Fault::io, path.string(), ": it has ", size, " bytes, ", file.size,
                " were written");
  }
}

// Checks that every piece has its entry, and that there are no others.
void check_header(const Manifest& manifest, std::size_t index, const Path& path) {
  const auto header = read_safetensors_header(path);
  std::map<std::string_view, const SafetensorsEntry*> entries;
  for (const auto& entry : header.entries) entries.emplace(entry.name, &entry);
  for (const auto& tensor : manifest.tensors) {
    for (const auto& piece : tensor.pieces) {
      if (piece.file != index) continue;
      const auto name = entry_name(tensor, piece);
      const auto found = entries.find(name);
      const bool same = found != entries.end() &&
                        found->second->dtype == tensor.dtype &&
                        header.data_begin + found->second->begin == piece.offset &&
                        num_elements(found->second->shape) == piece.count;
      if (!same) {
        throw Error(Fault::io, path.string(), ": '", name, "' is not where ",
                    kManifestName, " says");
      }
      entries.erase(found);
    }
  }
  if (!entries.empty()) {
    throw Error(Fault::io, path.string(), ": '", entries.begin()->first, "' is not in ",
                kManifestName);
  }
}

// Some blocks that follow each other.
struct Stretch {
  std::size_t file = 0;
  std::size_t begin = 0, end = 0;  // blocks
};

std::vector<Stretch> stretches_of(const Manifest& manifest) {
  constexpr std::int64_t kBytes = 32 << 20;
  const auto many = static_cast<std::size_t>(
      std::max<std::int64_t>(1, kBytes / manifest.block_bytes));
  std::vector<Stretch> stretches;
  for (std::size_t file = 0; file < manifest.files.size(); ++file) {
    const auto count = manifest.files[file].blocks.size();
    for (std::size_t at = 0; at < count; at += many) {
      stretches.push_back({file, at, std::min(at + many, count)});
    }
  }
  return stretches;
}

void check_bytes(const Manifest& manifest, const Stretch& stretch, const Path& path) {
  const InputFile file(path);
  const auto& record = manifest.files[stretch.file];
  std::vector<std::byte> memory(
      static_cast<std::size_t>(std::min(manifest.block_bytes, record.size)));
  for (auto block = stretch.begin; block < stretch.end; ++block) {
    const auto range = block_range(manifest, {stretch.file, block});
    const auto bytes = std::span(memory).first(static_cast<std::size_t>(range.size));
    file.read(range.begin, bytes);
    if (digest_of(bytes) != record.blocks[block]) {
      throw_damaged(manifest, {stretch.file, block}, path);
    }
  }
}

// Returns the step that the directory is named after, if it is named after one.
std::optional<std::int64_t> step_of_place(const Path& checkpoint) {
  const auto plain = checkpoint.has_filename() ? checkpoint : checkpoint.parent_path();
  const auto name = plain.filename().string();
  if (const auto hidden = hidden_of(name)) return hidden->step;
  return step_of(name);
}

void check_step(const Manifest& manifest, const Path& checkpoint) {
  const auto step = step_of_place(checkpoint);
  if (!step || *step == manifest.step) return;
  throw Error(Fault::io, checkpoint.string(), ": it holds step ", manifest.step,
              "; was it copied? A resume takes it under the name ",
              step_name(manifest.step), " only");
}

// A single hashing thread is slower than a fast disk.
constexpr std::size_t kThreads = 4;

void check_bytes(const Manifest& manifest, const Path& checkpoint) {
  const auto stretches = stretches_of(manifest);
  in_parallel(stretches.size(), kThreads, [&](std::size_t i) {
    const auto& name = manifest.files[stretches[i].file].name;
    check_bytes(manifest, stretches[i], checkpoint / name);
  });
}

}  // namespace

BlockRange block_range(const Manifest& manifest, const BlockIndex& index) {
  const auto begin = static_cast<std::int64_t>(index.block) * manifest.block_bytes;
  const auto end = manifest.files[index.file].size;
  return {begin, std::min(manifest.block_bytes, end - begin)};
}

void throw_damaged(const Manifest& manifest, const BlockIndex& index,
                   const Path& path) {
  const auto range = block_range(manifest, index);
  std::string tensors;
  int more = 0;
  for (const auto& tensor : manifest.tensors) {
    for (const auto& piece : tensor.pieces) {
      const auto bytes = num_bytes(tensor.dtype, piece.count).value_or(0);
      if (piece.file != index.file || piece.offset >= range.begin + range.size ||
          piece.offset + bytes <= range.begin) {
        continue;
      }
      if (tensors.size() > 200) {
        ++more;
      } else {
        tensors += str(tensors.empty() ? "" : ", ", tensor.name);
      }
    }
  }
  throw Error(Fault::io, path.string(), ": bytes ", range.begin, " to ",
              range.begin + range.size, " are not what was written; they hold ",
              tensors.empty() ? "the header" : tensors,
              more > 0 ? str(" and ", more, " more") : "");
}

Manifest verify(const Path& checkpoint, Depth depth) {
  auto manifest = read_manifest(checkpoint);
  check_step(manifest, checkpoint);
  for (const auto& file : manifest.files) check_size(checkpoint / file.name, file);
  if (depth == Depth::quick) return manifest;
  const auto before = fingerprint(checkpoint, manifest);
  const auto mark = read_mark(checkpoint, manifest);
  if (depth == Depth::marked && mark == Mark::read) return manifest;
  check_bytes(manifest, checkpoint);
  for (std::size_t i = 0; i < manifest.files.size(); ++i) {
    check_header(manifest, i, checkpoint / manifest.files[i].name);
  }
  if (mark == Mark::read) return manifest;
  try {
    write_mark(FileSystem::real(), checkpoint, {.mark = Mark::read, .before = before});
  } catch (const Error&) {  // another user's, or read-only: it is read again next time
  }
  return manifest;
}

}  // namespace lockstep::storage
