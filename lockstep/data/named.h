#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include <c10/util/SmallVector.h>
#include <torch/torch.h>

namespace lockstep {

struct NamedTensor {
  std::string name;
  torch::Tensor tensor;
};

// Tensors by name, in the order in which they were set: a batch, or the inputs and
// outputs of a model. They are few, so that looking one up is a walk; up to four with
// short names need no memory of their own.
class Named {
 public:
  Named() = default;
  Named(std::initializer_list<NamedTensor> tensors)
      : tensors_(tensors.begin(), tensors.end()) {}

  // Throws Fault::config, with the names there are, if there is none of this name.
  const torch::Tensor& at(std::string_view name) const;
  // Returns nullptr if there is none.
  const torch::Tensor* find(std::string_view name) const noexcept;

  // Replaces the tensor of this name, or appends it.
  void set(std::string_view name, torch::Tensor tensor);

  bool empty() const noexcept { return tensors_.empty(); }
  std::size_t size() const noexcept { return tensors_.size(); }
  auto begin() const noexcept { return tensors_.begin(); }
  auto end() const noexcept { return tensors_.end(); }

 private:
  c10::SmallVector<NamedTensor, 4> tensors_;
};

}  // namespace lockstep
