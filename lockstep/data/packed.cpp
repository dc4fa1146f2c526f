#include "lockstep/data/packed.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/detail/pool.h"

namespace lockstep::data {
namespace {

constexpr std::int64_t kPackedIgnored = -100;  // the default of PyTorch's cross-entropy

// A part of a sequence, in a row.
struct PackedPiece {
  std::int64_t sequence = 0;
  std::int64_t first = 0;  // of its tokens
  std::int64_t count = 0;
};

using Tokens = std::vector<std::int64_t>;

struct PackedScratch {
  Tokens input, target;
  std::vector<Tokens> fields;
  std::vector<std::span<std::byte>> rooms;  // of these
  std::vector<std::int64_t> lengths;
};

bool is_like(const FieldSpec& field, const SampleSpec& spec) {
  return field.varies && field.dtype == torch::kInt64 && field.shape == spec.shape;
}

class Packed : public Dataset {
 public:
  Packed(std::unique_ptr<Dataset> sequences, std::int64_t length)
      : sequences_(std::move(sequences)), length_(length) {
    const auto& inner = sequences_->spec();
    LOCKSTEP_CHECK(
        inner.varies && inner.target_varies && inner.dtype == torch::kInt64 &&
        inner.target_dtype == torch::kInt64 && inner.shape == inner.target_shape &&
        std::all_of(inner.fields.begin(), inner.fields.end(),
                    [&](const auto& one) { return is_like(one, inner); }));
    spec_ = inner;
    spec_.shape = spec_.target_shape = {length};
    spec_.varies = spec_.target_varies = false;
    for (auto& field : spec_.fields) {
      field.shape = {length};
      field.varies = false;
    }
    spec_.ignore_index = inner.ignore_index.value_or(kPackedIgnored);
    for (const char* name : {"segment", "position"}) {
      spec_.fields.push_back({.name = name, .shape = {length}, .dtype = torch::kInt64});
    }
    lay_out();
  }

  std::int64_t size() const noexcept override {
    return static_cast<std::int64_t>(rows_.size());
  }
  const SampleSpec& spec() const noexcept override { return spec_; }

  void read_sample(const Visit& visit, const SampleBuffer& room) const override {
    const auto scratch = scratch_.take();
    const auto numbers = [&](std::span<std::byte> bytes) {
      return reinterpret_cast<std::int64_t*>(bytes.data());
    };
    auto* input = numbers(room.input);
    auto* target = numbers(room.target_bytes);
    const auto others = sequences_->spec().fields.size();
    auto* segment = numbers(room.fields[others]);
    auto* position = numbers(room.fields[others + 1]);
    std::int64_t at = 0, number = 0;
    for (const auto& piece : rows_[static_cast<std::size_t>(visit.index)]) {
      read_sequence(visit, piece.sequence, *scratch);
      std::copy_n(scratch->input.begin() + piece.first, piece.count, input + at);
      std::copy_n(scratch->target.begin() + piece.first, piece.count, target + at);
      for (std::size_t f = 0; f < others; ++f) {
        std::copy_n(scratch->fields[f].begin() + piece.first, piece.count,
                    numbers(room.fields[f]) + at);
      }
      std::fill_n(segment + at, piece.count, ++number);
      for (std::int64_t i = 0; i < piece.count; ++i) position[at + i] = i;
      at += piece.count;
    }
    const auto left = length_ - at;
    std::fill_n(input + at, left, 0);
    std::fill_n(target + at, left, *spec_.ignore_index);
    for (std::size_t f = 0; f < others; ++f) {
      std::fill_n(numbers(room.fields[f]) + at, left, 0);
    }
    std::fill_n(segment + at, left, 0);
    std::fill_n(position + at, left, 0);
  }

 private:
  void lay_out() {
    auto room = std::int64_t{0};  // in the last row
    for (std::int64_t i = 0; i < sequences_->size(); ++i) {
      const auto all = sequences_->length_of(i);
      for (std::int64_t first = 0; first < all;) {
        // A short one stays whole: it begins a row rather than be cut.
        if (room == 0 || (first == 0 && room < all && all <= length_)) {
          rows_.emplace_back();
          room = length_;
        }
        const auto count = std::min(all - first, room);
        rows_.back().push_back({i, first, count});
        first += count;
        room -= count;
      }
    }
    if (!rows_.empty()) return;
    throw Error(Fault::io, "data: all ", sequences_->size(),
                " sequences are empty; there is nothing to pack");
  }

  void read_sequence(const Visit& visit, std::int64_t sequence,
                     PackedScratch& scratch) const {
    const auto longest = static_cast<std::size_t>(sequences_->spec().shape[0]);
    scratch.input.resize(longest);
    scratch.target.resize(longest);
    scratch.fields.resize(sequences_->spec().fields.size());
    scratch.rooms.clear();
    for (auto& field : scratch.fields) {
      field.resize(longest);
      scratch.rooms.push_back(std::as_writable_bytes(std::span(field)));
    }
    scratch.lengths.assign(2 + scratch.fields.size(), 0);
    auto inner = visit;
    inner.index = sequence;
    const auto bytes = std::as_writable_bytes(std::span(scratch.target));
    sequences_->read_sample(
        inner, {std::as_writable_bytes(std::span(scratch.input)), scratch.target,
                scratch.rooms, bytes, scratch.lengths});
  }

  std::unique_ptr<Dataset> sequences_;
  std::int64_t length_;
  SampleSpec spec_;
  std::vector<std::vector<PackedPiece>> rows_;
  mutable detail::Pool<PackedScratch> scratch_;
};

}  // namespace

std::unique_ptr<Dataset> packed(std::unique_ptr<Dataset> sequences,
                                std::int64_t length) {
  if (length < 1) {
    throw Error(Fault::config, "data: rows of length ", length,
                " hold no token; pack sequences into rows of at least 1");
  }
  return std::make_unique<Packed>(std::move(sequences), length);
}

}  // namespace lockstep::data
