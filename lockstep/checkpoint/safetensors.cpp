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

void write_safetensors(const std::filesystem::path& path, NamedTensors tensors) {
  std::map<std::string, torch::Tensor> by_name;
  std::vector<storage::SafetensorsEntry> entries;
  for (const auto& [name, tensor] : tensors) {
    by_name[name] = tensor;
    entries.push_back({.name = name,
                       .dtype = dtype_name(tensor.scalar_type()),
                       .shape = tensor.sizes().vec()});
  }
  std::sort(entries.begin(), entries.end(), storage::comes_before);
  storage::place(entries);
  storage::write_safetensors(
      path, entries, [&](const storage::SafetensorsEntry& entry, const auto& append) {
        const auto host = by_name.at(entry.name).detach().cpu().contiguous();
        append({static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes()});
      });
}

}  // namespace lockstep::checkpoint
