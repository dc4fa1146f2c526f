#include "lockstep/models/deferred_init.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include <c10/core/impl/LocalDispatchKeySet.h>

#include "lockstep/base/error.h"
#include "lockstep/models/detail/init_recorder.h"

namespace lockstep::models {
namespace detail {
namespace {

using torch::Tensor;
using torch::jit::Stack;

c10::StorageImpl& storage_of(const Tensor& tensor) {
  return *tensor.storage().unsafeGetStorageImpl();
}

bool is_hollow(const c10::IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined()) return false;
  const auto& tensor = value.toTensor();
  return tensor.has_storage() && tensor.storage().nbytes() > 0 &&
         tensor.storage().data() == nullptr;
}

// Returns a tensor with a shape and a true number of bytes: views of it work.
Tensor hollow_like(const Tensor& meta) {
  const auto bytes = meta.storage().nbytes();
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes,
                       c10::DataPtr(nullptr, c10::Device(c10::kCPU)),
                       c10::GetAllocator(c10::kCPU), /*resizable=*/false);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), meta.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(meta.sizes(), meta.strides(),
                                                      meta.storage_offset());
  return tensor;
}

bool writes(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

bool is_view(const c10::FunctionSchema& schema) {
  return !schema.returns().empty() &&
         std::all_of(schema.returns().begin(), schema.returns().end(),
                     [](const auto& returned) {
                       return returned.alias_info() != nullptr &&
                              !returned.alias_info()->isWrite();
                     });
}

// Operators whose result does not depend on what the tensor held.
bool is_overwriting(std::string_view name) {
  constexpr std::array<std::string_view, 6> kNames = {
      "aten::normal_", "aten::uniform_",   "aten::zero_",
      "aten::fill_",   "aten::bernoulli_", "aten::copy_"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

void give_memory(c10::StorageImpl& storage) {
  if (storage.data() != nullptr) return;
  storage.set_data_ptr_noswap(c10::GetAllocator(c10::kCPU)->allocate(storage.nbytes()));
}

void take_memory(c10::StorageImpl& storage) {
  storage.set_data_ptr_noswap(c10::DataPtr(nullptr, c10::Device(c10::kCPU)));
}

}  // namespace

// The dispatcher calls a plain function, which finds the recorder here.
InitRecorder*& current_recorder() noexcept {
  thread_local InitRecorder* current = nullptr;
  return current;
}

void InitRecorder::run(const c10::OperatorHandle& op, Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const auto first = stack->size() - arguments.size();
  bool from_tensors = false, from_hollow = false, changes = false;
  std::optional<std::size_t> device;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto& value = (*stack)[first + i];
    from_tensors |= value.isTensor() || value.isTensorList();
    from_hollow |= is_hollow(value);
    changes |= writes(arguments[i]);
    if (arguments[i].name() == "device") device = first + i;
  }
  const c10::impl::ExcludeDispatchKeyGuard once(c10::DispatchKey::DeferredInit);
  if (device && !from_tensors) return make(op, stack, *device);
  if (from_hollow && changes) return change(op, stack);
  if (!from_hollow || is_view(op.schema())) return op.callBoxed(stack);
  throw Error(Fault::config, "models: ", op.schema().name(),
              " needs the values of a tensor while the model is built");
}

void InitRecorder::make(const c10::OperatorHandle& op, Stack* stack,
                        std::size_t device) {
  Operation made{.op = op, .arguments = *stack};
  (*stack)[device] = c10::Device(c10::kMeta);
  op.callBoxed(stack);
  const auto meta = stack->back().toTensor();
  stack->pop_back();
  if (meta.numel() == 0) {
    auto real = made.arguments;
    op.callBoxed(&real);
    stack->push_back(real.back());
    return;
  }
  auto hollow = hollow_like(meta);
  stack->push_back(hollow);
  // Memory that is not set yet needs no operator.
  if (op.schema().name().rfind("aten::empty", 0) == 0) return;
  made.made = at::alias(hollow);
  made.uses = {&storage_of(hollow)};
  operations_.push_back(std::move(made));
}

void InitRecorder::change(const c10::OperatorHandle& op, Stack* stack) {
  const torch::NoGradGuard no_grad;
  const auto& schema = op.schema();
  const auto first = stack->size() - schema.arguments().size();
  Operation changed{.op = op};
  c10::IValue self;
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    auto value = (*stack)[first + i];
    if (writes(schema.arguments()[i])) self = value;
    if (is_hollow(value)) {
      changed.uses.push_back(&storage_of(value.toTensor()));
      value = at::alias(value.toTensor().detach());
    }
    changed.arguments.push_back(std::move(value));
  }
  operations_.push_back(std::move(changed));
  torch::jit::drop(*stack, schema.arguments().size());
  for (std::size_t i = 0; i < schema.returns().size(); ++i) stack->push_back(self);
}

void InitRecorder::remember(const torch::nn::Module& module) {
  const torch::NoGradGuard no_grad;
  const auto add = [&](const Tensor& tensor) {
    remembered_.push_back({tensor, at::alias(tensor.detach())});
  };
  for (const auto& parameter : module.parameters()) add(parameter);
  for (const auto& buffer : module.buffers()) add(buffer);
}

bool InitRecorder::overwrites(const Operation& operation, StorageKey storage) const {
  if (operation.made.defined()) return true;
  if (!is_overwriting(operation.op.schema().name())) return false;
  const auto& self = operation.arguments[0].toTensor();
  if (&storage_of(self) != storage || operation.uses.size() > 1) return false;
  return static_cast<std::size_t>(self.numel()) * self.element_size() ==
         storage->nbytes();
}

// What it made, or changed, is in the storages of the arguments then.
void InitRecorder::do_again(const Operation& operation) const {
  for (const auto* storage : operation.uses) {
    give_memory(const_cast<c10::StorageImpl&>(*storage));
  }
  auto stack = operation.arguments;
  operation.op.callBoxed(&stack);
  if (operation.made.defined()) operation.made.copy_(stack.back().toTensor());
}

// A storage has memory from the operator whose result lasts to the last one that
// changes it; results that another writes over are computed for what they draw.
void InitRecorder::replay(
    const std::function<void(const Tensor&, const Tensor&)>& take) {
  const torch::NoGradGuard no_grad;
  std::unordered_map<StorageKey, std::vector<std::size_t>> users;  // operators
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    for (const auto* storage : operations_[i].uses) users[storage].push_back(i);
  }
  std::unordered_map<StorageKey, std::vector<std::size_t>> tensors;  // remembered
  for (std::size_t i = 0; i < remembered_.size(); ++i) {
    tensors[&storage_of(remembered_[i].alias)].push_back(i);
  }
  const auto hand_over = [&](StorageKey storage) {
    auto& own = const_cast<c10::StorageImpl&>(*storage);
    // What was built with its values has no operator that would make them again.
    const bool keeps = users.count(storage) == 0 && own.data() != nullptr;
    if (own.nbytes() > 0) give_memory(own);
    for (const auto i : tensors[storage]) {
      take(remembered_[i].tensor, remembered_[i].alias);
    }
    tensors.erase(storage);
    if (own.nbytes() > 0 && !keeps) take_memory(own);
  };
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    do_again(operations_[i]);
    for (const auto* storage : operations_[i].uses) {
      const auto& own = users[storage];
      const auto next = std::upper_bound(own.begin(), own.end(), i);
      if (next == own.end()) {
        hand_over(storage);
      } else if (overwrites(operations_[*next], storage)) {
        take_memory(const_cast<c10::StorageImpl&>(*storage));
      }
    }
  }
  // Tensors that no operator has set, or that have no elements.
  std::vector<StorageKey> rest;
  for (const auto& [storage, list] : tensors) rest.push_back(storage);
  for (const auto* storage : rest) hand_over(storage);
}

}  // namespace detail

DeferredInit::DeferredInit() : recorder_(std::make_unique<detail::InitRecorder>()) {}
DeferredInit::~DeferredInit() = default;

void DeferredInit::record(const std::function<void()>& make) {
  struct Scope {
    explicit Scope(detail::InitRecorder* recorder)
        : before(std::exchange(detail::current_recorder(), recorder)),
          guard(c10::DispatchKey::DeferredInit) {}
    ~Scope() { detail::current_recorder() = before; }
    detail::InitRecorder* const before;
    const c10::impl::IncludeDispatchKeyGuard guard;
  };
  const Scope scope(recorder_.get());
  make();
}

void DeferredInit::remember(const torch::nn::Module& module) {
  recorder_->remember(module);
}

void DeferredInit::replay(const Take& take) {
  recorder_->replay(take);
}

}  // namespace lockstep::models
