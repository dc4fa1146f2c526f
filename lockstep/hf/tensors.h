#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/hf/gpt2.h"
#include "lockstep/storage/layout.h"

// The tensors of a GPT-2: their names there and here, and which of them are transposed.
// This is the only place that knows.
namespace lockstep::hf {

// Before the names of all but the head, in files of a GPT2LMHeadModel; those of a bare
// GPT2Model, as the original gpt2 is one, do not have it. Ours do not, either.
inline constexpr std::string_view kPrefix = "transformer.";

// The embedding, and the head, which a file may hold once more.
inline constexpr std::string_view kEmbedding = "wte.weight";
inline constexpr std::string_view kHead = "lm_head.weight";

struct ModelTensor {
  std::string name;      // ours
  storage::Shape shape;  // ours
};

// Returns what the gpt of that size has.
std::vector<ModelTensor> tensors_of(const Gpt2& model);

// Returns whether the file holds the transposed matrix: transformers' linear layers
// keep [in, out] (its Conv1D), ours [out, in].
bool is_transposed(std::string_view name);

// Returns whether it is the causal mask that old files hold in each block.
bool is_mask(std::string_view name);

// Returns the shape in the file of a tensor with this shape here, or the other way.
storage::Shape other_layout(std::string_view name, storage::Shape shape);

// A matrix of `rows` times `columns` elements of `width` bytes each, row-major.
struct Matrix {
  std::span<const std::byte> bytes;
  std::int64_t rows = 0, columns = 0, width = 0;
};

// REQUIRES: `out` has as many bytes as the matrix, and does not overlap it.
void transpose(const Matrix& matrix, std::span<std::byte> out);

}  // namespace lockstep::hf
