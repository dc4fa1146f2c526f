#include "lockstep/storage/weights_file.h"

#include <algorithm>
#include <optional>

#include "lockstep/storage/torch_file.h"

namespace lockstep::storage {

struct WeightsFile::Impl {
  Path path;
  std::vector<SafetensorsEntry> tensors;
  std::int64_t data_begin = 0;     // of a safetensors file
  std::optional<TorchFile> torch;  // its tensors in the order of ours
  std::vector<std::string> left_out;

  void read_torch(std::size_t index, const Give& give) const {
    const auto& tensor = torch->tensors()[index];
    const auto total = num_elements(tensor.shape).value_or(0);
    const auto width = num_bytes(tensor.dtype, 1).value_or(0);
    // A part of a tensor in another order costs as much as all of it.
    const auto step =
        is_row_major(tensor) ? std::int64_t{1} << 20 : std::max<std::int64_t>(1, total);
    std::vector<std::byte> bytes;
    for (std::int64_t at = 0; at < total; at += step) {
      const auto count = std::min(step, total - at);
      bytes.resize(static_cast<std::size_t>(count * width));
      torch->read(tensor, at, bytes);
      give(bytes);
    }
  }
};

WeightsFile::WeightsFile(const Path& path) : impl_(std::make_unique<Impl>()) {
  impl_->path = path;
  if (!is_torch_file(path)) {
    auto header = read_safetensors_header(path);
    impl_->tensors = std::move(header.entries);
    impl_->data_begin = header.data_begin;
    return;
  }
  impl_->torch.emplace(path);
  impl_->left_out = impl_->torch->left_out();
  for (const auto& tensor : impl_->torch->tensors()) {
    impl_->tensors.push_back(
        {.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape});
  }
}

WeightsFile::~WeightsFile() = default;
WeightsFile::WeightsFile(WeightsFile&&) noexcept = default;

const Path& WeightsFile::path() const noexcept {
  return impl_->path;
}

const std::vector<SafetensorsEntry>& WeightsFile::tensors() const noexcept {
  return impl_->tensors;
}

const std::vector<std::string>& WeightsFile::left_out() const noexcept {
  return impl_->left_out;
}

void WeightsFile::read(std::size_t index, const Give& give) const {
  if (impl_->torch) return impl_->read_torch(index, give);
  const auto& entry = impl_->tensors[index];
  read_in_pieces(impl_->path,
                 {impl_->data_begin + entry.begin, entry.end - entry.begin}, give);
}

}  // namespace lockstep::storage
