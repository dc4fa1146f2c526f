#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/storage/file_system.h"
#include "lockstep/storage/layout.h"
#include "lockstep/storage/safetensors.h"

namespace lockstep::storage {

// A tensor of a state dict: elements of a storage, which lies at `storage_begin` of the
// file.
struct TorchTensor {
  std::string name;
  std::string dtype;  // by the name of safetensors
  Shape shape;
  std::vector<std::int64_t> strides;
  std::int64_t offset = 0;  // of its first element in the storage
  std::int64_t storage_begin = 0;
  std::int64_t storage_bytes = 0;
};

// Returns whether its elements lie in row-major order without gaps; others cost the
// memory of the storage to read.
bool is_row_major(const TorchTensor& tensor);

// Returns whether a file begins as those of torch.save() do: a zip file, or a pickle by
// itself, as PyTorch wrote before 1.6, which TorchFile refuses with a remedy. False for
// one that can not be read.
bool is_torch_file(const Path& path);

// A file that Python's torch.save() wrote of a state dict, or of a dict that holds one
// under "model", "state_dict", "model_state_dict" or "module". The pickle in it is read
// by a reader that can build tensors, dicts and plain values, and nothing else: nothing
// is imported, called or executed, and any other content is refused.
//
// Threads: any number.
class TorchFile {
 public:
  // Throws Fault::io, with the reason, for anything else.
  explicit TorchFile(const Path& path);
  ~TorchFile();
  TorchFile(TorchFile&&) noexcept;

  const std::vector<TorchTensor>& tensors() const noexcept;

  // Returns the keys of the state dict whose values are no tensors.
  const std::vector<std::string>& left_out() const noexcept;

  // Reads as many elements as fill `out`, from `begin` on, in row-major order.
  void read(const TorchTensor& tensor, std::int64_t begin,
            std::span<std::byte> out) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Writes a state dict that torch.load(weights_only=True) reads, whole or not at all,
// with the memory of one piece, as write_safetensors() does. Throws Fault::config for a
// dtype that such a file has no plain name for.
void write_torch_file(
    const Path& path, const std::vector<SafetensorsEntry>& entries,
    const std::function<void(const SafetensorsEntry&, const Give&)>& fill);

}  // namespace lockstep::storage
