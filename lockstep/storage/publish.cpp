#include "lockstep/storage/publish.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/storage/catalog.h"
#include "lockstep/storage/detail/mark.h"
#include "lockstep/storage/detail/names.h"

namespace lockstep::storage {
namespace {

Path parent_of(const Path& path) {
  const auto plain = path.has_filename() ? path : path.parent_path();
  return plain.has_parent_path() ? plain.parent_path() : Path(".");
}

// Makes one record of the pieces of a tensor that lie in several files.
class Merger {
 public:
  explicit Merger(Manifest head) : manifest_(std::move(head)) {}

  void add(const WrittenFile& written) {
    for (const auto& tensor : written.tensors) add(tensor);
    manifest_.files.push_back(written.file);
  }

  Manifest take() { return std::move(manifest_); }

 private:
  void add(const TensorRecord& part);

  Manifest manifest_;
  std::map<std::string, std::size_t> places_;  // of tensors, by name
};

void Merger::add(const TensorRecord& part) {
  const auto [place, is_new] = places_.emplace(part.name, manifest_.tensors.size());
  if (is_new) {
    manifest_.tensors.push_back({.name = part.name,
                                 .dtype = part.dtype,
                                 .shape = part.shape,
                                 .order = part.order});
  }
  auto& whole = manifest_.tensors[place->second];
  LOCKSTEP_CHECK(whole.dtype == part.dtype && whole.shape == part.shape &&
                     whole.order == part.order,
                 "ranks wrote '", part.name, "' as ", whole.dtype, " ",
                 to_text(whole.shape), " and as ", part.dtype, " ",
                 to_text(part.shape));
  for (auto piece : part.pieces) {
    piece.file = manifest_.files.size();
    whole.pieces.push_back(piece);
  }
}

Manifest combined(Manifest head, const std::vector<WrittenFile>& written) {
  Merger merger(std::move(head));
  for (const auto& file : written) merger.add(file);
  auto manifest = merger.take();
  std::sort(manifest.tensors.begin(), manifest.tensors.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  for (auto& tensor : manifest.tensors) {
    // Empty pieces come before the one that begins at the same element.
    std::sort(tensor.pieces.begin(), tensor.pieces.end(),
              [](const auto& a, const auto& b) {
                return std::tie(a.begin, a.count) < std::tie(b.begin, b.count);
              });
  }
  try {
    check(manifest, str("checkpoint of step ", manifest.step));
  } catch (const Error& error) {
    throw Error(Fault::internal, error.what());
  }
  return manifest;
}

void check_sizes(const Manifest& manifest, const Path& directory) {
  for (const auto& file : manifest.files) {
    std::error_code error;
    const auto path = directory / file.name;
    const auto size = std::filesystem::file_size(path, error);
    if (error || static_cast<std::int64_t>(size) != file.size) {
      throw Error(Fault::io, "checkpoint: '", path.string(), "' should have ",
                  file.size, " bytes, ", error ? error.message() : str("it has ", size),
                  "; every rank must see the same directory");
    }
  }
}

// Gives the checkpoint its name. Where an old one of the step stands, it does so until
// the new one is in its place; then it is aside, in the directory that is returned.
Path put_in_place(FileSystem& files, const Path& checkpoints, std::int64_t step) {
  const auto partial = partial_directory(checkpoints, step);
  const auto place = step_directory(checkpoints, step);
  if (!is_there(place)) {
    files.rename(partial, place);
    return {};
  }
  if (files.exchange(partial, place)) return partial;
  // This takes two steps; a crash between them is put right by settle().
  const auto aside = checkpoints / hidden_name(step, Suffix::replaced);
  files.rename(place, aside);
  files.sync_directory(checkpoints);
  files.rename(partial, place);
  return aside;
}

}  // namespace

Path step_directory(const Path& checkpoints, std::int64_t step) {
  return checkpoints / step_name(step);
}

Path partial_directory(const Path& checkpoints, std::int64_t step) {
  return checkpoints / hidden_name(step, Suffix::partial);
}

Path begin_save(FileSystem& files, const Path& checkpoints, std::int64_t step) {
  if (files.make_directory(checkpoints)) files.sync_directory(parent_of(checkpoints));
  static_cast<void>(settle(files, checkpoints, step));
  const auto partial = partial_directory(checkpoints, step);
  files.make_directory(partial);
  return partial;
}

Path publish(FileSystem& files, const Path& checkpoints, WrittenSave save) {
  const auto manifest = combined(std::move(save.head), save.written);
  const auto partial = partial_directory(checkpoints, manifest.step);
  check_sizes(manifest, partial);
  write_file(files, partial / kManifestName, to_text(manifest));
  write_mark(files, partial,
             {.mark = Mark::written, .before = fingerprint(partial, manifest)});
  files.sync_directory(partial);
  const auto old = put_in_place(files, checkpoints, manifest.step);
  try {
    update_links(files, checkpoints, manifest.step);
  } catch (const Error& error) {  // names only: the checkpoint stands
    log::warning("checkpoint",
                 str("`last` and `best` stay as they were: ", error.what()));
  }
  // Only now is it safe from a power cut, and the old one may go.
  files.sync_directory(checkpoints);
  if (!old.empty()) remove_tree(files, old);
  return step_directory(checkpoints, manifest.step);
}

void abandon_save(FileSystem& files, const Path& checkpoints,
                  std::int64_t step) noexcept {
  try {
    const auto partial = partial_directory(checkpoints, step);
    // It may be the one before, which the new one has just replaced: that must be safe
    // from a power cut first.
    const bool whole = is_there(partial / kManifestName);
    if (whole && is_there(step_directory(checkpoints, step))) {
      files.sync_directory(checkpoints);
    }
    remove_tree(files, partial);
  } catch (const std::exception&) {
    // The next start cleans up; the failure that led here is the one to report.
  }
}

}  // namespace lockstep::storage
