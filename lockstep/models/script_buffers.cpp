#include "lockstep/models/detail/script_buffers.h"

#include <set>

#include <c10/core/ScalarType.h>
#include <torch/csrc/jit/ir/ir.h>

#include "lockstep/base/error.h"

namespace lockstep::models {
namespace {

void find_assigned(const torch::jit::Block& block, std::set<std::string>& names) {
  for (const auto* node : block.nodes()) {
    if (node->kind() == c10::prim::SetAttr) names.insert(node->s(c10::attr::name));
    for (const auto* inner : node->blocks()) find_assigned(*inner, names);
  }
}

// The attributes that some method assigns; names are enough: one too many costs a copy.
std::set<std::string> assigned_in(const torch::jit::Module& module) {
  std::set<std::string> names;
  for (const auto& item : module.named_modules()) {
    for (const auto& method : item.value.get_methods()) {
      method.function().ensure_defined();
      find_assigned(*method.graph()->block(), names);
    }
  }
  return names;
}

bool fits(const torch::Tensor& value, const torch::Tensor& buffer) {
  const bool is_rounded = value.is_floating_point() && buffer.is_floating_point();
  return value.sizes() == buffer.sizes() &&
         (is_rounded || value.scalar_type() == buffer.scalar_type());
}

std::string shown(const torch::Tensor& tensor) {
  return lockstep::str(tensor.sizes(), " ",
                       c10::getDtypeNames(tensor.scalar_type()).first);
}

}  // namespace

ScriptBuffers::ScriptBuffers(const torch::jit::Module& module) {
  const auto assigned = assigned_in(module);
  for (const auto& item : module.named_modules()) {
    const auto owner = item.value._ivalue();
    const auto type = item.value.type();
    for (std::size_t slot = 0; slot < type->numAttributes(); ++slot) {
      const auto value = owner->getSlot(slot);
      if (!type->is_buffer(slot) || !value.isTensor()) continue;
      const auto name = type->getAttributeName(slot);
      all_.push_back({.owner = owner,
                      .slot = slot,
                      .name = item.name.empty() ? name : item.name + "." + name,
                      .tensor = value.toTensor(),
                      .is_assigned = assigned.contains(name)});
    }
  }
}

void ScriptBuffers::lend() {
  if (!torch::GradMode::is_enabled()) return;
  for (auto& one : all_) {
    if (!one.is_assigned) continue;
    one.lent = one.tensor.clone();
    one.version = one.lent._version();
    one.owner->setSlot(one.slot, one.lent);
  }
}

void ScriptBuffers::take_back(const std::string& file) {
  const torch::NoGradGuard no_grad;
  for (auto& one : all_) {
    const auto& now = one.owner->getSlot(one.slot).toTensor();
    if (now.is_same(one.tensor)) continue;
    const torch::Tensor value = now;
    one.owner->setSlot(one.slot, one.tensor);
    const bool is_as_lent = value.is_same(one.lent) && value._version() == one.version;
    one.lent.reset();
    if (is_as_lent) continue;
    if (!fits(value, one.tensor)) {
      throw Error(Fault::config, "model.file: '", file, "' assigns its buffer ",
                  one.name, ", which is ", shown(one.tensor), ", a tensor that is ",
                  shown(value), "; keep the shape and the type of a buffer");
    }
    one.tensor.copy_(value);
  }
}

void ScriptBuffers::withdraw() {
  for (auto& one : all_) {
    one.lent.reset();
    one.owner->setSlot(one.slot, one.tensor);
  }
}

}  // namespace lockstep::models
