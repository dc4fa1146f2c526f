#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/torch.h>

namespace lockstep::models::detail {

// Remembers the operators that initialise tensors without memory.
class InitRecorder {
 public:
  // Does an operator of a constructor: makes tensors without memory, or remembers what
  // changes one.
  void run(const c10::OperatorHandle& op, torch::jit::Stack* stack);

  void remember(const torch::nn::Module& module);
  void replay(
      const std::function<void(const torch::Tensor&, const torch::Tensor&)>& take);

 private:
  using StorageKey = const c10::StorageImpl*;
  struct Operation {
    c10::OperatorHandle op;
    torch::jit::Stack arguments;   // its tensors are aliases, not those of the module
    torch::Tensor made;            // of one that makes a tensor; else undefined
    std::vector<StorageKey> uses;  // storages without memory
  };
  struct Remembered {
    torch::Tensor tensor;  // of the module
    torch::Tensor alias;   // with the shape and the storage that it was built with
  };

  void make(const c10::OperatorHandle& op, torch::jit::Stack* stack,
            std::size_t device);
  void change(const c10::OperatorHandle& op, torch::jit::Stack* stack);
  bool overwrites(const Operation& operation, StorageKey storage) const;
  void do_again(const Operation& operation) const;

  std::vector<Operation> operations_;
  std::vector<Remembered> remembered_;
};

// Returns the recorder of this thread's constructor; null: there is none.
InitRecorder*& current_recorder() noexcept;

}  // namespace lockstep::models::detail
