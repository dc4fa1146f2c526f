#include "lockstep/cli/detail/tensor_file.h"

#include <cstring>
#include <limits>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"

namespace lockstep::cli {
namespace {

constexpr std::size_t kLengthBytes = 8;

std::size_t element_bytes(std::string_view dtype) {
  if (dtype == "F32") return sizeof(float);
  return dtype == "F64" || dtype == "I64" ? sizeof(double) : 0;
}

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
  file.parse();
  return file;
}

void TensorFile::refuse(const std::string& why) const {
  throw Error(Fault::io, "parity: ", path_.string(), " is no whole trace: ", why,
              "; run it again");
}

void TensorFile::parse() {
  if (bytes_.size() < kLengthBytes) refuse(str("it has ", bytes_.size(), " bytes"));
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) {
    length = length << 8 | static_cast<unsigned char>(bytes_[i]);
  }
  if (length > bytes_.size() - kLengthBytes) {
    refuse(str("its header should have ", length, " bytes, it has ",
               bytes_.size() - kLengthBytes, " in all"));
  }
  data_ = kLengthBytes + length;
  try {
    const auto header =
        nlohmann::json::parse(std::string_view(bytes_).substr(kLengthBytes, length));
    for (const auto& [name, about] : header.items()) {
      if (name == "__metadata__") continue;
      const auto& offsets = about.at("data_offsets");
      const Entry entry{about.at("shape").get<std::vector<std::int64_t>>(),
                        about.at("dtype").get<std::string>(),
                        offsets.at(0).get<std::size_t>(),
                        offsets.at(1).get<std::size_t>()};
      check(name, entry);
      entries_.emplace(name, entry);
    }
  } catch (const nlohmann::json::exception& error) {
    refuse(str("its header can not be read (", error.what(), ")"));
  }
}

void TensorFile::check(const std::string& name, const Entry& entry) const {
  std::size_t count = 1;
  const auto room = bytes_.size() - data_;
  for (const auto size : entry.shape) {
    const auto wide = static_cast<std::size_t>(size);
    if (size < 0 || (wide != 0 && count > room / wide)) {
      refuse(str("the shape of '", name, "' is larger than the file"));
    }
    count *= wide;
  }
  const auto bytes = count * element_bytes(entry.dtype);
  if (entry.end > room || entry.begin > entry.end || entry.end - entry.begin != bytes) {
    refuse(str("'", name, "' should be at ", entry.begin, " to ", entry.end, " of ",
               room, " bytes, and of ", bytes));
  }
}

std::vector<double> TensorFile::values(std::string_view name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) refuse(str("'", name, "' is not in it"));
  const auto& entry = found->second;
  const auto bytes =
      std::string_view(bytes_).substr(data_ + entry.begin, entry.end - entry.begin);
  if (entry.dtype == "F32") return widened<float>(bytes);
  if (entry.dtype == "F64") return widened<double>(bytes);
  refuse(str("'", name, "' is of dtype ", entry.dtype));
}

}  // namespace lockstep::cli
