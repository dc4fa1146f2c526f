#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/storage/safetensors.h"

namespace lockstep::cli {

// A safetensors file of numbers, read without LibTorch.
class TensorFile {
 public:
  // Throws Fault::io, with the reason, for a file that is not one, or not whole.
  static TensorFile read(const std::filesystem::path& path);

  using Entry = storage::SafetensorsEntry;
  const std::map<std::string, Entry, std::less<>>& entries() const { return entries_; }

  bool has(std::string_view name) const {
    return entries_.find(name) != entries_.end();
  }
  // Throws Fault::io for a name that is not there, or a dtype that is none of the two.
  std::vector<double> values(std::string_view name) const;

 private:
  [[noreturn]] void refuse(const std::string& why) const;

  std::filesystem::path path_;
  std::string bytes_;
  std::int64_t data_ = 0;  // where the tensors begin
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace lockstep::cli
