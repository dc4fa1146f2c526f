#include "lockstep/comm/detail/reduce.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "lockstep/base/error.h"

namespace lockstep::comm::detail {
namespace {

struct Add {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a + b);
  }
};

// A value that is not a number wins, as in torch::maximum.
struct Max {
  template <typename T>
  T operator()(T a, T b) const {
    return a != a || a > b ? a : b;
  }
};

struct Min {
  template <typename T>
  T operator()(T a, T b) const {
    return a != a || a < b ? a : b;
  }
};

template <typename T>
constexpr bool kIsHalf =
    std::is_same_v<T, c10::Half> || std::is_same_v<T, c10::BFloat16>;

// Sums are gathered in a block that stays in the first-level cache. The block is no
// other's memory, so the loops are vectorised even when a part is also an out.
template <typename T>
class Block {
 public:
  using Wide = std::conditional_t<kIsHalf<T>, float, T>;
  static constexpr std::size_t kElements = 8192 / sizeof(Wide);

  template <typename Combine>
  void combine(const T* __restrict a, const T* __restrict b, std::size_t n,
               Combine with) {
    for (std::size_t i = 0; i < n; ++i) {
      sum_[i] = with(static_cast<Wide>(a[i]), static_cast<Wide>(b[i]));
    }
  }

  template <typename Combine>
  void combine(const T* __restrict part, std::size_t n, Combine with) {
    for (std::size_t i = 0; i < n; ++i) {
      sum_[i] = with(sum_[i], static_cast<Wide>(part[i]));
    }
  }

  void load(const T* __restrict part, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) sum_[i] = static_cast<Wide>(part[i]);
  }

  void divide(std::size_t n, Wide by) {
    for (std::size_t i = 0; i < n; ++i) sum_[i] /= by;
  }

  void store(T* __restrict out, std::size_t n) const {
    if constexpr (std::is_same_v<T, Wide>) {
      std::memcpy(out, sum_, n * sizeof(T));
    } else {
      for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<T>(sum_[i]);
    }
  }

 private:
  alignas(64) Wide sum_[kElements];
};

template <typename T, typename Combine>
void reduce_with(const ReducedBuffers& buffers, bool mean, Combine with) {
  const auto& [parts, outs, num_elements] = buffers;
  Block<T> block;
  const auto at = [](auto* bytes, std::size_t index) {
    using Pointer =
        std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(bytes)>>,
                           const T*, T*>;
    return reinterpret_cast<Pointer>(bytes) + index;
  };
  for (std::size_t begin = 0; begin < num_elements; begin += Block<T>::kElements) {
    const auto n = std::min(Block<T>::kElements, num_elements - begin);
    if (parts.size() == 1) {
      block.load(at(parts[0], begin), n);
    } else {
      block.combine(at(parts[0], begin), at(parts[1], begin), n, with);
    }
    for (std::size_t r = 2; r < parts.size(); ++r) {
      block.combine(at(parts[r], begin), n, with);
    }
    if (mean) block.divide(n, static_cast<typename Block<T>::Wide>(parts.size()));
    for (auto* out : outs) block.store(at(out, begin), n);
  }
}

template <typename T>
void reduce_as(Reduce op, const ReducedBuffers& buffers) {
  if (op == Reduce::max) return reduce_with<T>(buffers, false, Max{});
  if (op == Reduce::min) return reduce_with<T>(buffers, false, Min{});
  reduce_with<T>(buffers, op == Reduce::mean, Add{});
}

using Function = void (*)(Reduce, const ReducedBuffers&);

// Returns null for a dtype that can not be reduced.
Function function_for(torch::Dtype dtype) noexcept {
  switch (dtype) {
    case torch::kFloat32:
      return &reduce_as<float>;
    case torch::kFloat64:
      return &reduce_as<double>;
    case torch::kHalf:
      return &reduce_as<c10::Half>;
    case torch::kBFloat16:
      return &reduce_as<c10::BFloat16>;
    case torch::kInt8:
      return &reduce_as<std::int8_t>;
    case torch::kUInt8:
      return &reduce_as<std::uint8_t>;
    case torch::kInt16:
      return &reduce_as<std::int16_t>;
    case torch::kInt32:
      return &reduce_as<std::int32_t>;
    case torch::kInt64:
      return &reduce_as<std::int64_t>;
    default:
      return nullptr;
  }
}

}  // namespace

bool can_reduce(torch::Dtype dtype) noexcept {
  return function_for(dtype) != nullptr;
}

void reduce(const Reduction& reduction, const ReducedBuffers& buffers) {
  const auto function = function_for(reduction.dtype);
  LOCKSTEP_CHECK(function != nullptr, c10::toString(reduction.dtype));
  function(reduction.op, buffers);
}

}  // namespace lockstep::comm::detail
