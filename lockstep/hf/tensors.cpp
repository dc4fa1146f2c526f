#include "lockstep/hf/tensors.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::hf {
namespace {

constexpr std::array<std::string_view, 4> kTransposed = {
    "attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight"};

constexpr std::string_view kBlocks = "h.";

// Returns "attn.c_attn.weight" of "h.11.attn.c_attn.weight"; "" of a name outside.
std::string_view name_in_block(std::string_view name) {
  if (!name.starts_with(kBlocks)) return {};
  const auto end = name.find_first_not_of("0123456789", kBlocks.size());
  if (end == kBlocks.size() || end == std::string_view::npos || name[end] != '.') {
    return {};
  }
  return name.substr(end + 1);
}

// Squares that fit into the nearest cache, so that neither side is read in strides.
constexpr std::int64_t kTile = 32;

template <std::size_t kWidth>
void transpose_tiles(const Matrix& matrix, std::byte* out) {
  const auto [bytes, rows, columns, width] = matrix;
  const auto* in = bytes.data();
  constexpr auto kBytes = static_cast<std::int64_t>(kWidth);
  for (std::int64_t top = 0; top < rows; top += kTile) {
    const auto bottom = std::min(rows, top + kTile);
    for (std::int64_t left = 0; left < columns; left += kTile) {
      const auto right = std::min(columns, left + kTile);
      for (auto row = top; row < bottom; ++row) {
        for (auto column = left; column < right; ++column) {
          std::memcpy(out + (column * rows + row) * kBytes,
                      in + (row * columns + column) * kBytes, kWidth);
        }
      }
    }
  }
}

}  // namespace

std::vector<ModelTensor> tensors_of(const Gpt2& model) {
  const auto width = model.hidden;
  std::vector<ModelTensor> all = {{std::string(kEmbedding), {model.vocabulary, width}},
                                  {"wpe.weight", {model.context, width}}};
  const auto norm = [&](const std::string& name) {
    all.push_back({name + ".weight", {width}});
    all.push_back({name + ".bias", {width}});
  };
  const auto linear = [&](const std::string& name, std::int64_t in, std::int64_t out) {
    all.push_back({name + ".weight", {out, in}});
    all.push_back({name + ".bias", {out}});
  };
  for (std::int64_t i = 0; i < model.layers; ++i) {
    const auto block = str(kBlocks, i);
    norm(block + ".ln_1");
    linear(block + ".attn.c_attn", width, 3 * width);
    linear(block + ".attn.c_proj", width, width);
    norm(block + ".ln_2");
    linear(block + ".mlp.c_fc", width, 4 * width);
    linear(block + ".mlp.c_proj", 4 * width, width);
  }
  norm("ln_f");
  return all;
}

bool is_transposed(std::string_view name) {
  const auto inside = name_in_block(name);
  return std::find(kTransposed.begin(), kTransposed.end(), inside) != kTransposed.end();
}

bool is_mask(std::string_view name) {
  const auto inside = name_in_block(name);
  return inside == "attn.bias" || inside == "attn.masked_bias";
}

storage::Shape other_layout(std::string_view name, storage::Shape shape) {
  if (is_transposed(name)) std::reverse(shape.begin(), shape.end());
  return shape;
}

void transpose(const Matrix& matrix, std::span<std::byte> out) {
  LOCKSTEP_CHECK(out.size() == matrix.bytes.size(), out.size());
  switch (matrix.width) {
    case 1:
      return transpose_tiles<1>(matrix, out.data());
    case 2:
      return transpose_tiles<2>(matrix, out.data());
    case 4:
      return transpose_tiles<4>(matrix, out.data());
    case 8:
      return transpose_tiles<8>(matrix, out.data());
    default:
      throw Error(Fault::config, "hf: elements of ", matrix.width,
                  " bytes cannot be transposed; convert the weights to float32");
  }
}

}  // namespace lockstep::hf
