#include "lockstep/parallel/detail/flat_optimizers.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::parallel::detail {
namespace {

// What an optimizer remembers of each element; not its step count, which is one number.
std::vector<torch::Tensor> per_element(const optim::Optimizer& optimizer,
                                       std::int64_t num_elements) {
  std::vector<torch::Tensor> tensors;
  for (auto& [name, tensor] : optimizer.state()) {
    if (tensor.dim() == 1 && tensor.numel() == num_elements) tensors.push_back(tensor);
  }
  return tensors;
}

// Copies of pieces of tensors, to be put back.
class Kept {
 public:
  void keep(const torch::Tensor& tensor, const Slot& slot) {
    const auto piece = tensor.narrow(0, slot.offset, slot.numel);
    pieces_.emplace_back(piece, piece.clone());
  }
  void put_back() {
    for (auto& [piece, copy] : pieces_) piece.copy_(copy);
  }

 private:
  std::vector<std::pair<torch::Tensor, torch::Tensor>> pieces_;
};

const Group& group_like(const std::vector<Group>& layout, const Group& group) {
  const auto found =
      std::find_if(layout.begin(), layout.end(), [&](const Group& other) {
        return other.dtype == group.dtype && other.device == group.device;
      });
  LOCKSTEP_CHECK(found != layout.end(), "no group of ", group.dtype);
  return *found;
}

void move_elements(const torch::Tensor& tensor, const Group& before,
                   const Group& after) {
  const auto old = tensor.clone();
  tensor.zero_();
  for (const auto& slot : after.slots) {
    const auto was = std::find_if(
        before.slots.begin(), before.slots.end(),
        [&](const Slot& other) { return other.parameter == slot.parameter; });
    tensor.narrow(0, slot.offset, slot.numel)
        .copy_(old.narrow(0, was->offset, was->numel));
  }
}

}  // namespace

FlatOptimizers::FlatOptimizers(const config::OptimConfig& config,
                               std::vector<Group> layout,
                               const std::vector<torch::Tensor>& values)
    : layout_(std::move(layout)) {
  for (const auto& buffer : values) {
    optimizers_.push_back(optim::make_optimizer(config, buffer));
  }
}

void FlatOptimizers::step(std::vector<torch::Tensor>& values,
                          std::vector<torch::Tensor>& gradients, double lr,
                          const std::vector<std::size_t>& untouched) {
  const torch::NoGradGuard no_grad;
  Kept kept;
  for (std::size_t g = 0; g < layout_.size() && !untouched.empty(); ++g) {
    const auto state = per_element(*optimizers_[g], layout_[g].numel);
    for (const auto& slot : layout_[g].slots) {
      if (std::find(untouched.begin(), untouched.end(), slot.parameter) ==
          untouched.end()) {
        continue;
      }
      kept.keep(values[g], slot);
      for (const auto& tensor : state) kept.keep(tensor, slot);
    }
  }
  for (std::size_t g = 0; g < layout_.size(); ++g) {
    optimizers_[g]->step(values[g], gradients[g], lr);
  }
  kept.put_back();
}

void FlatOptimizers::follow(const std::vector<Group>& layout) {
  const torch::NoGradGuard no_grad;
  std::vector<std::unique_ptr<optim::Optimizer>> moved;
  for (const auto& group : layout) {
    const auto& before = group_like(layout_, group);
    auto& optimizer = optimizers_[static_cast<std::size_t>(&before - layout_.data())];
    for (const auto& tensor : per_element(*optimizer, before.numel)) {
      move_elements(tensor, before, group);
    }
    moved.push_back(std::move(optimizer));
  }
  optimizers_ = std::move(moved);
  layout_ = layout;
}

}  // namespace lockstep::parallel::detail
