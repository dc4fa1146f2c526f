#include "lockstep/checkpoint/pieces.h"

#include <algorithm>
#include <numeric>

#include "lockstep/base/error.h"

namespace lockstep::checkpoint {

std::string dtype_name(torch::Dtype dtype) {
  switch (dtype) {
    case torch::kFloat64:
      return "F64";
    case torch::kFloat32:
      return "F32";
    case torch::kFloat16:
      return "F16";
    case torch::kBFloat16:
      return "BF16";
    case torch::kInt64:
      return "I64";
    case torch::kInt32:
      return "I32";
    case torch::kUInt8:
      return "U8";
    case torch::kBool:
      return "BOOL";
    default:
      throw Error(Fault::internal, "checkpoint: safetensors has no name for dtype ",
                  dtype);
  }
}

torch::Dtype dtype_of_name(const std::string& name) {
  for (const auto dtype :
       {torch::kFloat64, torch::kFloat32, torch::kFloat16, torch::kBFloat16,
        torch::kInt64, torch::kInt32, torch::kUInt8, torch::kBool}) {
    if (dtype_name(dtype) == name) return dtype;
  }
  throw Error(Fault::io, "checkpoint: there is no dtype for '", name, "'");
}

bool Piece::is_whole() const {
  return begin == 0 && data.numel() == storage::num_elements(shape);
}

storage::Order order_of(const torch::Tensor& tensor) {
  if (tensor.is_contiguous()) return {};
  storage::Order order(static_cast<std::size_t>(tensor.dim()));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return tensor.stride(a) > tensor.stride(b);
  });
  return storage::normal(order);
}

Piece whole_piece(std::string name, const torch::Tensor& tensor,
                  bool changes_in_forward) {
  LOCKSTEP_CHECK(tensor.is_non_overlapping_and_dense(), name);
  return {.name = std::move(name),
          .data = tensor.detach().as_strided({tensor.numel()}, {1}),
          .shape = tensor.sizes().vec(),
          .order = order_of(tensor),
          .changes_in_forward = changes_in_forward};
}

}  // namespace lockstep::checkpoint
