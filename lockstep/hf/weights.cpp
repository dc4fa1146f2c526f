#include "lockstep/hf/weights.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/json_problem.h"
#include "lockstep/base/text.h"
#include "lockstep/hf/tensors.h"
#include "lockstep/storage/weights_file.h"

namespace lockstep::hf {
namespace {

constexpr std::int64_t kLargestIndexBytes = 64 << 20;
constexpr std::array<std::string_view, 2> kFiles = {"model.safetensors",
                                                    "pytorch_model.bin"};
constexpr std::string_view kIndex = ".index.json";
constexpr std::string_view kCopyAgain = "; copy it again from where it is from";

bool is_there(const Path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// {"metadata": {...}, "weight_map": {"wte.weight": "model-00001-of-00002.safetensors"}}
using WeightMap = std::map<std::string, std::string>;

WeightMap read_index(const Path& index) {
  try {
    const auto json = nlohmann::json::parse(files::read(index, kLargestIndexBytes));
    return json.at("weight_map").get<WeightMap>();
  } catch (const nlohmann::json::exception& error) {
    throw Error(Fault::io, index.string(), ": ", json_problem(error), kCopyAgain);
  }
}

// An index comes from elsewhere: it must not name files outside of its folder.
void check_shard_name(const Path& index, const std::string& name) {
  const bool is_plain = !name.empty() && name != "." && name != ".." &&
                        name.find('/') == name.npos && name.find('\0') == name.npos;
  if (is_plain) return;
  throw Error(Fault::io, index.string(), ": '", name,
              "' is not the name of a file beside it; the index is not to be trusted");
}

std::vector<Path> find_shards(const Path& index) {
  std::set<std::string> names;
  for (const auto& [tensor, file] : read_index(index)) names.insert(file);
  std::vector<Path> files;
  for (const auto& name : names) {
    check_shard_name(index, name);
    files.push_back(index.parent_path() / name);
    if (is_there(files.back())) continue;
    throw Error(Fault::io, index.string(), ": it names '", name,
                "', which is not there; copy that file into the folder, too");
  }
  if (files.empty()) {
    throw Error(Fault::io, index.string(), ": its weight_map is empty", kCopyAgain);
  }
  return files;
}

storage::WeightsFile open_file(const Path& file) {
  try {
    return storage::WeightsFile(file);
  } catch (const Error& error) {
    throw Error(error.fault(), error.what(), kCopyAgain);
  }
}

}  // namespace

std::vector<Path> weight_files(const Path& folder) {
  for (const auto name : kFiles) {
    if (is_there(folder / name)) return {folder / name};
    const auto index = folder / str(name, kIndex);
    if (is_there(index)) return find_shards(index);
  }
  throw Error(Fault::io, folder.string(), ": there are no weights in it, neither ",
              kFiles[0], " nor ", kFiles[1], " nor an index of shards",
              "; copy them there, or name another folder");
}

struct Weights::Impl {
  // The place of a tensor.
  struct Place {
    std::size_t file = 0;
    std::size_t index = 0;  // of the file's tensors
  };

  // The names that the files have.
  struct Names {
    std::map<std::string, Place> found;  // without the prefix
    std::string prefixed, bare;          // one of each kind
  };

  Path folder;
  Gpt2 model;
  std::vector<storage::WeightsFile> files;
  std::vector<Tensor> tensors;
  std::vector<Place> places;  // of each tensor
  std::optional<Place> head;

  const storage::SafetensorsEntry& entry(const Place& place) const {
    return files[place.file].tensors()[place.index];
  }
  const Path& file_of(std::size_t tensor) const {
    return files[places[tensor].file].path();
  }

  void open() {
    for (const auto& file : weight_files(folder)) files.push_back(open_file(file));
    Names names;
    for (std::size_t f = 0; f < files.size(); ++f) {
      for (std::size_t i = 0; i < files[f].tensors().size(); ++i) {
        add({f, i}, names);
      }
    }
    if (!names.prefixed.empty() && !names.bare.empty()) {
      throw Error(Fault::config, folder.string(), ": '", names.prefixed,
                  "' has the prefix ", kPrefix, " and '", names.bare,
                  "' has not: the files are of two models; copy those of one");
    }
    check_index(names.found);
  }

  void add(const Place& place, Names& names) {
    const auto& at = entry(place);
    if (at.name == kHead) {
      head = place;
      return;
    }
    const bool has_prefix = at.name.starts_with(kPrefix);
    (has_prefix ? names.prefixed : names.bare) = at.name;
    const auto name = at.name.substr(has_prefix ? kPrefix.size() : 0);
    if (is_mask(name)) return;
    const auto [first, is_new] = names.found.emplace(name, place);
    if (!is_new) {
      throw Error(Fault::io, files[place.file].path().string(), ": '", at.name,
                  "' is in ", files[first->second.file].path().filename().string(),
                  ", too; the shards do not belong together", kCopyAgain);
    }
    tensors.push_back({name, at.dtype, other_layout(name, at.shape)});
    places.push_back(place);
  }

  // Every tensor of an index is in its shard: otherwise a shard is an old one.
  void check_index(const std::map<std::string, Place>& found) const {
    for (const auto name : kFiles) {
      const auto index = folder / str(name, kIndex);
      if (is_there(folder / name)) return;
      if (!is_there(index)) continue;
      for (const auto& [tensor, file] : read_index(index)) {
        const bool has_prefix = tensor.starts_with(kPrefix);
        const auto own = tensor.substr(has_prefix ? kPrefix.size() : 0);
        if (tensor == kHead || is_mask(own) || found.contains(own)) continue;
        throw Error(Fault::io, (folder / file).string(), ": it lacks '", tensor,
                    "', which ", index.filename().string(), " says is in it",
                    kCopyAgain);
      }
      return;
    }
  }

  std::vector<std::byte> read_bytes(const Place& place) const {
    std::vector<std::byte> bytes;
    files[place.file].read(place.index, [&](std::span<const std::byte> piece) {
      bytes.insert(bytes.end(), piece.begin(), piece.end());
    });
    return bytes;
  }

  // Our gpt has no head of its own.
  void check_head() const {
    const auto place = folder / kConfigName;
    if (!head) {
      if (model.is_tied) return;
      throw Error(Fault::config, place.string(), ": tie_word_embeddings is false, but ",
                  kHead,
                  " is not in the files; set it to true if the head is the "
                  "embedding, or copy all files");
    }
    const auto embedding =
        std::find_if(tensors.begin(), tensors.end(),
                     [](const Tensor& tensor) { return tensor.name == kEmbedding; });
    if (embedding == tensors.end()) return;  // check() names it
    const auto& its = places[static_cast<std::size_t>(embedding - tensors.begin())];
    const bool same = entry(*head).dtype == entry(its).dtype &&
                      entry(*head).shape == entry(its).shape &&
                      read_bytes(*head) == read_bytes(its);
    if (same) return;
    throw Error(
        Fault::config, files[head->file].path().string(), ": ", kHead,
        " is not the embedding ", kEmbedding,
        " once more (tie_word_embeddings "
        "is ",
        model.is_tied ? "true" : "false", " in ", place.string(),
        "), and our gpt has no head of its own; name weights whose head is tied");
  }
};

Weights::Weights(const Path& folder) : impl_(std::make_unique<Impl>()) {
  impl_->folder = folder;
  impl_->model = read_gpt2(folder);
  impl_->open();
  impl_->check_head();
}

Weights::~Weights() = default;
Weights::Weights(Weights&&) noexcept = default;

const Gpt2& Weights::model() const noexcept {
  return impl_->model;
}

const std::vector<Weights::Tensor>& Weights::tensors() const noexcept {
  return impl_->tensors;
}

void Weights::check(const Exceptions& exceptions) const {
  std::map<std::string, storage::Shape> expected;
  for (auto& tensor : tensors_of(impl_->model)) {
    expected.emplace(std::move(tensor.name), std::move(tensor.shape));
  }
  const auto config = (impl_->folder / kConfigName).string();
  for (std::size_t i = 0; i < tensors().size(); ++i) {
    const auto& [name, dtype, shape] = tensors()[i];
    const auto wanted = expected.find(name);
    const bool is_known = wanted != expected.end();
    const bool fits = is_known && wanted->second == shape;
    if (!fits && !text::matches_any(exceptions.ignore, name)) {
      const auto file = impl_->file_of(i).string();
      if (!is_known) {
        throw Error(Fault::config, file, ": '", name,
                    "' is not a tensor of the GPT-2 of ", config,
                    " (n_layer=", impl_->model.layers,
                    "); leave it out by checkpoint.ignore, or name other weights");
      }
      throw Error(Fault::config, file, ": '", name, "' has the shape ",
                  storage::to_text(other_layout(name, shape)), ", but ", config,
                  " makes it ", storage::to_text(other_layout(name, wanted->second)),
                  "; they are not of one model: copy both again");
    }
    if (is_known) expected.erase(wanted);
  }
  for (const auto& [name, shape] : expected) {
    if (text::matches_any(exceptions.allow_missing, name)) continue;
    if (text::matches_any(exceptions.ignore, name)) continue;
    throw Error(Fault::config, impl_->folder.string(), ": '", name,
                "' is missing in its files, but ", config,
                " (n_layer=", impl_->model.layers,
                ") asks for it; copy all files again, or allow it "
                "by checkpoint.allow_missing");
  }
}

void Weights::read(std::size_t index, std::span<std::byte> out) const {
  const auto& [name, dtype, shape] = tensors()[index];
  const auto& place = impl_->places[index];
  if (is_transposed(name) && shape.size() == 2) {
    const auto bytes = impl_->read_bytes(place);
    transpose({.bytes = bytes,
               .rows = shape[1],
               .columns = shape[0],
               .width = storage::num_bytes(dtype, 1).value_or(0)},
              out);
    return;
  }
  std::size_t at = 0;
  // A name of its own: Clang takes no structured binding into a lambda.
  const std::string& tensor = name;
  impl_->files[place.file].read(place.index, [&](std::span<const std::byte> piece) {
    LOCKSTEP_CHECK(at + piece.size() <= out.size(), tensor);
    std::memcpy(out.data() + at, piece.data(), piece.size());
    at += piece.size();
  });
}

}  // namespace lockstep::hf
