#include <cmath>
#include <cstring>
#include <limits>

#include "lockstep/cli/detail/checkpoint.h"
#include "lockstep/storage/numbers.h"

namespace lockstep::cli {
namespace {

// Two stretches of one tensor.
struct BytePair {
  std::span<const std::byte> a, b;
  const std::string& dtype;
  std::int64_t count;
};

struct DifferenceSum {
  TensorDifference result;
  double scale = 0;  // the largest |a|

  // Numbers whose bytes are the same are equal, NaN included.
  void add(const BytePair& pair) {
    const auto& [a, b, dtype, count] = pair;
    std::vector<double> of_a(static_cast<std::size_t>(count)), of_b(of_a.size());
    const bool numbers =
        storage::to_numbers(dtype, a, of_a) && storage::to_numbers(dtype, b, of_b);
    const auto width = a.size() / of_a.size();
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < of_a.size(); ++i) {
      if (numbers && std::isfinite(of_a[i])) scale = std::max(scale, std::abs(of_a[i]));
      if (std::memcmp(a.data() + i * width, b.data() + i * width, width) == 0) continue;
      ++result.elements;
      const double one = numbers ? std::abs(of_a[i] - of_b[i]) : kInfinity;
      result.absolute = std::max(result.absolute, std::isnan(one) ? kInfinity : one);
    }
  }
};

}  // namespace

std::int64_t chunk_elements(const storage::TensorRecord& tensor, bool reorders) {
  constexpr std::int64_t kElements = 1 << 20;
  return reorders ? std::max<std::int64_t>(1, tensor.num_elements()) : kElements;
}

TensorDifference tensor_difference(const storage::Reader& a, const storage::Reader& b,
                                   const std::string& name) {
  const auto& tensor = a.tensor(name);
  const bool reorders = tensor.order != b.tensor(name).order;
  const auto step = chunk_elements(tensor, reorders);
  DifferenceSum sum;
  std::vector<std::byte> of_a, of_b;
  for (std::int64_t at = 0; at < tensor.num_elements(); at += step) {
    const auto count = std::min(step, tensor.num_elements() - at);
    const auto bytes =
        static_cast<std::size_t>(storage::num_bytes(tensor.dtype, count).value_or(0));
    of_a.resize(bytes);
    of_b.resize(bytes);
    a.read(name, {at, count, tensor.order}, of_a);
    b.read(name, {at, count, tensor.order}, of_b);
    sum.add({.a = of_a, .b = of_b, .dtype = tensor.dtype, .count = count});
  }
  auto& [result, scale] = sum;
  if (result.absolute > 0) {
    result.relative = scale > 0 && std::isfinite(result.absolute)
                          ? result.absolute / scale
                          : std::numeric_limits<double>::infinity();
  }
  return result;
}

}  // namespace lockstep::cli
