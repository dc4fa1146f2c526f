#include "lockstep/data/tensor_dataset.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/detail/numbers.h"

namespace lockstep::data {
namespace {

std::vector<std::int64_t> shape_of(const torch::Tensor& tensor) {
  const auto sizes = tensor.sizes().vec();
  return {sizes.begin() + 1, sizes.end()};
}

class Tensors : public Dataset {
 public:
  Tensors(const Named& tensors, const TensorOptions& options) {
    const auto input = add(tensors, "input");
    const auto target = add(tensors, "target");
    spec_.shape = shape_of(input);
    spec_.dtype = input.scalar_type();
    spec_.scale = options.scaling.scale;
    spec_.shift = options.scaling.shift;
    spec_.target_shape = shape_of(target);
    spec_.target_dtype = target.scalar_type();
    // Negative values are no classes, or missing ones: the task gives their meaning.
    // Several of another type than int64 may as well be labels, 0 or 1 each.
    const bool classes =
        spec_.target_dtype == torch::kInt64 ||
        (detail::is_whole(spec_.target_dtype) && spec_.target_shape.empty());
    spec_.num_classes = options.num_classes;
    if (classes && options.num_classes == 0 && target.numel() > 0) {
      const auto whole = target.to(torch::kInt64);
      const auto least = whole.min().item<std::int64_t>();
      if (least >= 0) spec_.num_classes = whole.max().item<std::int64_t>() + 1;
    }
    for (const auto& [name, tensor] : tensors) {
      if (name == "input" || name == "target") continue;
      add(tensors, name);
      spec_.fields.push_back(
          {.name = name, .shape = shape_of(tensor), .dtype = tensor.scalar_type()});
    }
  }

  std::int64_t size() const noexcept override { return rows_[0].size(0); }
  const SampleSpec& spec() const noexcept override { return spec_; }

  void read_sample(const Visit& visit, const SampleBuffer& room) const override {
    copy(0, visit.index, room.input);
    copy(1, visit.index, room.target_bytes);
    for (std::size_t i = 2; i < rows_.size(); ++i) {
      copy(i, visit.index, room.fields[i - 2]);
    }
  }

 private:
  torch::Tensor add(const Named& tensors, std::string_view name) {
    const auto& tensor = tensors.at(name);
    if (tensor.dim() == 0 || (!rows_.empty() && tensor.size(0) != rows_[0].size(0))) {
      throw Error(Fault::config, "data: '", name, "' has the shape ", tensor.sizes(),
                  ", but there are ", rows_.empty() ? 0 : rows_[0].size(0),
                  " samples; every tensor has a row for each sample");
    }
    rows_.push_back(tensor.detach().cpu().contiguous());
    return rows_.back();
  }

  void copy(std::size_t tensor, std::int64_t row, std::span<std::byte> to) const {
    const auto* from = static_cast<const std::byte*>(rows_[tensor].const_data_ptr());
    std::memcpy(to.data(), from + row * static_cast<std::int64_t>(to.size()),
                to.size());
  }

  std::vector<torch::Tensor> rows_;  // input, target, fields
  SampleSpec spec_;
};

}  // namespace

std::unique_ptr<Dataset> from_tensors(const Named& tensors,
                                      const TensorOptions& options) {
  return std::make_unique<Tensors>(tensors, options);
}

}  // namespace lockstep::data
