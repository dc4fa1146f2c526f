#include "lockstep/cli/detail/tensor_file.h"

#include <cstring>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"

namespace lockstep::cli {
namespace {

template <typename T>
std::vector<double> widened(std::string_view bytes) {
  std::vector<double> values(bytes.size() / sizeof(T));
  for (std::size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    values[i] = static_cast<double>(value);
  }
  return values;
}

}  // namespace

TensorFile TensorFile::read(const std::filesystem::path& path) {
  TensorFile file;
  file.path_ = path;
  file.bytes_ = files::read(path, std::numeric_limits<std::int64_t>::max());
  try {
    const auto header = storage::parse_safetensors(
        file.bytes_, static_cast<std::int64_t>(file.bytes_.size()), path.string());
    for (const auto& entry : header.entries) file.entries_.emplace(entry.name, entry);
    file.data_ = header.data_begin;
  } catch (const Error& error) {
    file.refuse(error.what());
  }
  return file;
}

void TensorFile::refuse(const std::string& why) const {
  throw Error(Fault::io, "parity: ", path_.string(), " is not a complete trace: ", why,
              "; run it again");
}

std::vector<double> TensorFile::values(std::string_view name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) refuse(str("'", name, "' is not in it"));
  const auto& entry = found->second;
  const auto bytes = std::string_view(bytes_).substr(
      static_cast<std::size_t>(data_ + entry.begin),
      static_cast<std::size_t>(entry.end - entry.begin));
  if (entry.dtype == "F32") return widened<float>(bytes);
  if (entry.dtype == "F64") return widened<double>(bytes);
  refuse(str("'", name, "' is of dtype ", entry.dtype));
}

}  // namespace lockstep::cli
