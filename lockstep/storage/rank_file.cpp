#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/storage/detail/block_writer.h"
#include "lockstep/storage/detail/manifest_json.h"
#include "lockstep/storage/publish.h"
#include "lockstep/storage/safetensors.h"

namespace lockstep::storage {
namespace {

TensorRecord record_of(const PieceToWrite& piece) {
  return {.name = piece.name,
          .dtype = piece.dtype,
          .shape = piece.shape,
          .order = normal(piece.order),
          .pieces = {{.begin = piece.begin, .count = piece.count}}};
}

SafetensorsEntry entry_of(const PieceToWrite& piece) {
  const auto record = record_of(piece);
  const auto name = entry_name(record, record.pieces.front());
  const bool whole = name == piece.name;
  return {.name = name,
          .dtype = piece.dtype,
          .shape = whole ? piece.shape : Shape{piece.count}};
}

void sort_for_file(std::vector<PieceToWrite>& pieces) {
  std::stable_sort(pieces.begin(), pieces.end(), [](const auto& a, const auto& b) {
    const auto bits_a = bits_of(a.dtype).value_or(0);
    const auto bits_b = bits_of(b.dtype).value_or(0);
    if (bits_a != bits_b) return bits_a > bits_b;
    return std::tie(a.name, a.begin) < std::tie(b.name, b.begin);
  });
}

// Pieces of one tensor stand together, since they are sorted by name.
std::vector<TensorRecord> records_of(const std::vector<PieceToWrite>& pieces,
                                     const std::vector<SafetensorsEntry>& entries,
                                     std::int64_t data_begin) {
  std::vector<TensorRecord> records;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    auto record = record_of(pieces[i]);
    record.pieces.front().offset = data_begin + entries[i].begin;
    if (!records.empty() && records.back().name == record.name) {
      records.back().pieces.push_back(record.pieces.front());
    } else {
      records.push_back(std::move(record));
    }
  }
  return records;
}

}  // namespace

std::int64_t PieceToWrite::num_bytes() const {
  return storage::num_bytes(dtype, count).value_or(0);
}

std::string WrittenFile::to_json() const {
  Json json = {{"file", json_of(file)}, {"tensors", Json::array()}};
  for (const auto& tensor : tensors) json["tensors"].push_back(json_of(tensor, {file}));
  return json.dump();
}

WrittenFile WrittenFile::from_json(std::string_view text) {
  try {
    const auto json = Json::parse(text);
    WrittenFile written{.file = file_from(json.at("file")), .tensors = {}};
    const auto indices = indices_of({written.file});
    for (const auto& tensor : json.at("tensors")) {
      written.tensors.push_back(tensor_from(tensor, indices));
    }
    return written;
  } catch (const nlohmann::json::exception& error) {
    throw Error(Fault::io, "a rank's record of its file: ", error.what());
  }
}

struct RankFile::Impl {
  std::vector<PieceToWrite> pieces;
  WrittenFile written;
  std::unique_ptr<BlockWriter> writer;
};

RankFile::RankFile(FileSystem& files, const Path& directory, const std::string& name,
                   std::vector<PieceToWrite> pieces, WriteOptions options)
    : impl_(std::make_unique<Impl>()) {
  sort_for_file(pieces);
  std::vector<SafetensorsEntry> entries;
  entries.reserve(pieces.size());
  for (const auto& piece : pieces) entries.push_back(entry_of(piece));
  place(entries);
  const auto header = header_text(entries);
  const auto data_begin = static_cast<std::int64_t>(header.size());
  const auto total = data_begin + (entries.empty() ? 0 : entries.back().end);
  impl_->written.file = {.name = name, .size = total, .blocks = {}};
  impl_->written.tensors = records_of(pieces, entries, data_begin);
  impl_->pieces = std::move(pieces);
  impl_->writer = std::make_unique<BlockWriter>(
      files.create(directory / name, options.caching), total, options);
  impl_->writer->append(std::as_bytes(std::span(header)));
}

RankFile::~RankFile() = default;
RankFile::RankFile(RankFile&&) noexcept = default;

const std::vector<PieceToWrite>& RankFile::pieces() const noexcept {
  return impl_->pieces;
}

void RankFile::append(Bytes bytes) {
  impl_->writer->append(bytes);
}

WrittenFile RankFile::finish() {
  impl_->written.file.blocks = impl_->writer->finish();
  return std::move(impl_->written);
}

std::int64_t RankFile::buffer_bytes() const noexcept {
  return impl_->writer->buffer_bytes();
}

}  // namespace lockstep::storage
