#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/storage/file_system.h"
#include "lockstep/storage/safetensors.h"

namespace lockstep::storage {

// A file of named tensors of either kind: safetensors, or a state dict of
// torch.save(), of which nothing is executed.
//
// Threads: any number.
class WeightsFile {
 public:
  // Throws Fault::io, with the reason, for a file that is neither, or not whole.
  explicit WeightsFile(const Path& path);
  ~WeightsFile();
  WeightsFile(WeightsFile&&) noexcept;

  const Path& path() const noexcept;
  const std::vector<SafetensorsEntry>& tensors() const noexcept;

  // Returns the keys of a state dict whose values are no tensors.
  const std::vector<std::string>& left_out() const noexcept;

  // Gives the bytes of tensors()[index], row-major, in pieces of some megabytes.
  void read(std::size_t index, const Give& give) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::storage
