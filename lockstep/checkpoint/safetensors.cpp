#include "lockstep/checkpoint/safetensors.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/checkpoint/pieces.h"

namespace lockstep::checkpoint {
namespace {

// Header: a little-endian 64-bit length, then JSON padded with spaces to eight bytes.
std::string header_of(const NamedTensors& tensors) {
  nlohmann::ordered_json header;
  // transformers refuses a file that does not say whose layout it has.
  header["__metadata__"] = {{"format", "pt"}};
  std::uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    if (header.contains(name)) {
      throw Error(Fault::internal, "checkpoint: two tensors are named '", name, "'");
    }
    const std::uint64_t end = offset + tensor.nbytes();
    header[name] = {{"dtype", dtype_name(tensor.scalar_type())},
                    {"shape", tensor.sizes().vec()},
                    {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string json = header.dump();
  json.resize((json.size() + 7) / 8 * 8, ' ');
  std::uint64_t length = json.size();
  std::string bytes(sizeof length, '\0');
  for (auto& byte : bytes) {
    byte = static_cast<char>(length & 0xFF);
    length >>= 8;
  }
  return bytes + json;
}

}  // namespace

NamedTensors state_of(const torch::nn::Module& module) {
  NamedTensors state;
  for (const auto& item : module.named_parameters()) {
    state.emplace_back(item.key(), item.value());
  }
  for (const auto& item : module.named_buffers()) {
    state.emplace_back(item.key(), item.value());
  }
  return state;
}

void write_safetensors(const std::filesystem::path& path, NamedTensors tensors) {
  // Wide dtypes first: every tensor is then aligned to its element without holes.
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    if (a.second.element_size() != b.second.element_size()) {
      return a.second.element_size() > b.second.element_size();
    }
    return a.first < b.first;
  });
  const std::string header = header_of(tensors);
  files::write_atomically(path, [&](int fd) {
    files::write_all(fd, header, path);
    for (const auto& [name, tensor] : tensors) {
      const auto host = tensor.detach().cpu().contiguous();
      files::write_all(fd, {static_cast<const char*>(host.data_ptr()), host.nbytes()},
                       path);
    }
  });
}

}  // namespace lockstep::checkpoint
