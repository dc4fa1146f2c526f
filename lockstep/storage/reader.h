#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "lockstep/storage/file_system.h"
#include "lockstep/storage/manifest.h"

namespace lockstep::storage {

// The wanted elements of a tensor: [begin, begin + count), counted in `order`.
struct ElementRange {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  Order order;
};

// A published checkpoint. Reads the blocks that hold the wanted elements and no others;
// each block is verified once, by the thread that touches it first.
//
// Threads: any number read at once.
class Reader {
 public:
  // Reads the manifest and opens the files. Throws Fault::io, naming the file, if
  // something is missing or has another size.
  explicit Reader(const Path& checkpoint);
  ~Reader();
  Reader(Reader&&) noexcept;

  const Path& path() const noexcept;
  const Manifest& manifest() const noexcept;

  // Throws Fault::io, naming the checkpoint, if there is no such tensor.
  const TensorRecord& tensor(std::string_view name) const;

  // Fills `out`, which has the size of the range. Fault::io names file and tensor when
  // bytes differ from those written.
  void read(std::string_view name, const ElementRange& range,
            std::span<std::byte> out) const;

  // Reads the whole tensor in row-major order.
  void read(std::string_view name, std::span<std::byte> out) const;

  std::int64_t bytes_read() const noexcept;  // from disk, so far

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::storage
