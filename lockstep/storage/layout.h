#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::storage {

using Shape = std::vector<std::int64_t>;

// The dimensions of a tensor from the slowest to the fastest, in the order in which its
// elements are stored: {0, 2, 3, 1} for channels last. Empty: row-major.
using Order = std::vector<std::int64_t>;

// Returns the bits of a dtype of safetensors by the format's own name: "F32", "BF16",
// "BOOL", ... Empty for a name that the format does not have.
std::optional<std::int64_t> bits_of(std::string_view dtype);

// Returns the product; empty if it overflows or a dimension is negative.
std::optional<std::int64_t> num_elements(const Shape& shape);

// Returns the bytes of `count` elements; empty if they overflow or end inside a byte,
// or the dtype is unknown.
std::optional<std::int64_t> num_bytes(std::string_view dtype, std::int64_t count);

// Returns an empty order for row-major, however it is spelled.
Order normal(Order order);

// Returns whether it names each of `dimensions` once, or is empty.
bool is_order(const Order& order, std::size_t dimensions);

// Returns for every dimension of `shape` how many elements of the order lie between
// neighbours.
std::vector<std::int64_t> strides_of(const Shape& shape, const Order& order);

// Returns "[64, 3, 7, 7]".
std::string to_text(const Shape& shape);

// Goes through the elements [begin, ...) of one order and gives the position of each in
// another.
class Walk {
 public:
  struct Orders {
    const Order& from;
    const Order& to;
  };
  Walk(const Shape& shape, const Orders& orders, std::int64_t begin);

  std::int64_t position() const noexcept { return position_; }
  void next() noexcept;

 private:
  struct Dimension {
    std::int64_t size, stride, index;
  };
  std::vector<Dimension> dimensions_;  // fastest first
  std::int64_t position_ = 0;
};

}  // namespace lockstep::storage
