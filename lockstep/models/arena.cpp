#include "lockstep/models/arena.h"

#include <algorithm>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::models {

std::size_t Arena::add(Buffer buffer) {
  LOCKSTEP_CHECK(buffer.bytes >= 0 && buffer.first <= buffer.last, buffer.name);
  buffer.bytes = (buffer.bytes + kAlignment - 1) / kAlignment * kAlignment;
  buffers_.push_back(std::move(buffer));
  return buffers_.size() - 1;
}

void Arena::place() {
  std::vector<std::size_t> order(buffers_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return buffers_[a].bytes > buffers_[b].bytes;
  });
  std::vector<const Buffer*> placed;  // by their offsets
  for (const auto index : order) {
    auto& buffer = buffers_[index];
    std::int64_t offset = 0;
    for (const auto* other : placed) {
      if (other->last < buffer.first || buffer.last < other->first) continue;
      if (other->offset >= offset + buffer.bytes) break;
      offset = std::max(offset, other->offset + other->bytes);
    }
    buffer.offset = offset;
    bytes_ = std::max(bytes_, offset + buffer.bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), &buffer,
                                   [](const Buffer* a, const Buffer* b) {
                                     return a->offset < b->offset;
                                   }),
                  &buffer);
  }
}

std::int64_t Arena::sum() const noexcept {
  std::int64_t sum = 0;
  for (const auto& buffer : buffers_) sum += buffer.bytes;
  return sum;
}

std::string Arena::table() const {
  std::string text;
  for (const auto& buffer : buffers_) {
    text += str(buffer.name, ": ", buffer.bytes, " bytes at ", buffer.offset,
                ", moments ", buffer.first, " to ", buffer.last, "\n");
  }
  return text + str("together ", bytes_, " bytes instead of ", sum(), "\n");
}

}  // namespace lockstep::models
