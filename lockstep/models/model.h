#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "lockstep/config/model.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/named.h"
#include "lockstep/models/own_backward.h"
#include "lockstep/models/recompute.h"

namespace lockstep::models {

// The tensors that a model is built for.
struct Shape {
  std::vector<std::int64_t> input;  // of one sample: (C, H, W)
  std::int64_t num_classes = 0;
  std::vector<data::FieldSpec> tensors =
      {};  // all that a sample has, these two as well

  // Returns how many numbers a model predicts for a sample: one for each class, or one
  // for each number of a target that has none (regression, labels).
  std::int64_t num_outputs() const;
};

// The module to train: named tensors in, named tensors out. Knows nothing of ranks,
// devices, optimizers or losses.
class Model : public torch::nn::Module {
 public:
  // One tensor in, one tensor out: (B, ...) -> (B, num_classes), for instance. It is
  // enough to write this one; or forward_named() instead.
  virtual torch::Tensor forward(const torch::Tensor& input);

  // Maps the tensors of inputs() to those that the task uses. Unless overridden:
  // forward() of "input", as "output".
  virtual Named forward_named(const Named& inputs);

  // Returns the tensors of a batch that forward_named() is given; those of a sample,
  // and "<name>_mask" of one whose length varies.
  virtual std::vector<std::string> inputs() const { return {"input"}; }

  // Returns the interface of a model that computes its gradients itself; else null:
  // autograd does.
  virtual OwnBackward* own_backward() noexcept { return nullptr; }

  // Returns the layout in which parameters and inputs make this model fastest.
  virtual torch::MemoryFormat memory_format() const {
    return torch::MemoryFormat::Contiguous;
  }

  // Activations of every n-th block are computed again in the backward pass instead of
  // being kept: less memory, more time, the same bits. 0: all are kept.
  void recompute_every(int n) noexcept { recompute_every_ = n; }
  int recompute_every() const noexcept { return recompute_every_; }
  // 0 means that there is nothing to compute again.
  std::size_t num_blocks() const noexcept { return blocks_.size(); }
  const torch::nn::Module& block(std::size_t i) const { return *blocks_[i].module; }

  // Runs a block in the place of compute(input), for whoever has to do something before
  // and after it: gather its parameters, for instance. Empty: blocks just run.
  using BlockRunner = std::function<torch::Tensor(
      std::size_t block, const BlockFunction& compute, const torch::Tensor& input)>;
  void run_blocks_by(BlockRunner runner) { runner_ = std::move(runner); }

  // Called with the input of each block, and with the output of the last one, as
  // forward() comes to it. Empty: none is called.
  using BlockWatch = std::function<void(std::size_t, const torch::Tensor&)>;
  void watch_blocks(BlockWatch watch) { watch_ = std::move(watch); }

 protected:
  // The parts of forward() that follow each other, in their order. The module is
  // registered by the caller, too.
  void add_block(std::shared_ptr<torch::nn::Module> module, BlockFunction compute);
  torch::Tensor run_blocks(torch::Tensor x);

 private:
  struct Block {
    std::shared_ptr<torch::nn::Module> module;
    BlockFunction compute;
  };
  std::vector<Block> blocks_;
  int recompute_every_ = 0;
  BlockWatch watch_;
  BlockRunner runner_;
};

// Builds the model that a recipe names; its initial values come from torch's default
// generator. Throws Fault::config for a name that does not exist or a shape that the
// model can not take.
std::shared_ptr<Model> build(const config::ModelConfig& config, const Shape& shape);

}  // namespace lockstep::models
