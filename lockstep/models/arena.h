#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::models {

// Lays out buffers whose times of use are known in one piece of memory: those that are
// never needed at the same time may lie at the same place.
class Arena {
 public:
  struct Buffer {
    std::string name;
    std::int64_t bytes = 0;
    int first = 0, last = 0;   // the moments between which it holds something
    std::int64_t offset = -1;  // after place()
  };

  // Returns the buffer's index. Moments are any numbers that grow with time.
  std::size_t add(Buffer buffer);

  // Gives every buffer its place, the largest first, each as far down as it fits.
  void place();

  const Buffer& at(std::size_t index) const { return buffers_.at(index); }
  const std::vector<Buffer>& buffers() const noexcept { return buffers_; }
  std::int64_t bytes() const noexcept { return bytes_; }  // that all need together
  std::int64_t sum() const noexcept;                      // without sharing
  // Returns a line for each buffer: what, how much, from when to when and where.
  std::string table() const;

 private:
  static constexpr std::int64_t kAlignment = 512;

  std::vector<Buffer> buffers_;
  std::int64_t bytes_ = 0;
};

}  // namespace lockstep::models
