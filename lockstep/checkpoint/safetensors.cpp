#include "lockstep/checkpoint/safetensors.h"

#include <algorithm>
#include <map>

#include "lockstep/checkpoint/pieces.h"
#include "lockstep/storage/safetensors.h"

namespace lockstep::checkpoint {
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

namespace {

std::vector<storage::SafetensorsEntry> to_entries(const NamedTensors& tensors) {
  std::vector<storage::SafetensorsEntry> entries;
  for (const auto& [name, tensor] : tensors) {
    entries.push_back({.name = name,
                       .dtype = dtype_name(tensor.scalar_type()),
                       .shape = tensor.sizes().vec()});
  }
  std::sort(entries.begin(), entries.end(), storage::comes_before);
  storage::place(entries);
  return entries;
}

}  // namespace

void visit_in_file_order(const NamedTensors& tensors, const WholeTensor& whole) {
  const std::map<std::string, torch::Tensor> by_name(tensors.begin(), tensors.end());
  for (const auto& entry : to_entries(tensors)) whole(by_name.at(entry.name));
}

void write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                       const WholeTensor& whole) {
  const std::map<std::string, torch::Tensor> by_name(tensors.begin(), tensors.end());
  storage::write_safetensors(
      path, to_entries(tensors),
      [&](const storage::SafetensorsEntry& entry, const auto& append) {
        const auto& tensor = by_name.at(entry.name);
        const auto host = (whole ? whole(tensor) : tensor).detach().cpu().contiguous();
        append({static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes()});
      });
}

}  // namespace lockstep::checkpoint
