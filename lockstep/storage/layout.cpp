#include "lockstep/storage/layout.h"

#include <algorithm>

#include "lockstep/base/str.h"

namespace lockstep::storage {
namespace {

std::size_t dimension_at(const Order& order, std::size_t i) {
  return order.empty() ? i : static_cast<std::size_t>(order[i]);
}

}  // namespace

Order normal(Order order) {
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i] != static_cast<std::int64_t>(i)) return order;
  }
  return {};
}

bool is_order(const Order& order, std::size_t dimensions) {
  if (order.empty()) return true;
  if (order.size() != dimensions) return false;
  std::vector<bool> seen(dimensions, false);
  for (const auto dimension : order) {
    if (dimension < 0 || dimension >= static_cast<std::int64_t>(dimensions))
      return false;
    if (seen[static_cast<std::size_t>(dimension)]) return false;
    seen[static_cast<std::size_t>(dimension)] = true;
  }
  return true;
}

std::vector<std::int64_t> strides_of(const Shape& shape, const Order& order) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  for (auto i = shape.size(); i-- > 0;) {
    const auto dimension = dimension_at(order, i);
    strides[dimension] = stride;
    stride *= shape[dimension];
  }
  return strides;
}

std::string to_text(const Shape& shape) {
  std::string text = "[";
  for (const auto size : shape) text += str(text.size() > 1 ? ", " : "", size);
  return text + "]";
}

Walk::Walk(const Shape& shape, const Orders& orders, std::int64_t begin) {
  const auto strides = strides_of(shape, orders.to);
  for (auto i = shape.size(); i-- > 0;) {
    const auto dimension = dimension_at(orders.from, i);
    const auto size = std::max<std::int64_t>(1, shape[dimension]);
    const auto index = begin % size;
    begin /= size;
    position_ += index * strides[dimension];
    dimensions_.push_back({size, strides[dimension], index});
  }
}

void Walk::next() noexcept {
  for (auto& dimension : dimensions_) {
    position_ += dimension.stride;
    if (++dimension.index < dimension.size) return;
    position_ -= dimension.size * dimension.stride;
    dimension.index = 0;
  }
}

}  // namespace lockstep::storage
