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

// What a model is built for.
struct Shape {
  std::vector<std::int64_t> input;  // of one sample: (C, H, W)
  std::int64_t num_classes = 0;
  std::vector<data::FieldSpec> tensors =
      {};  // all that a sample has, these two as well
};

// What is trained: named tensors in, named tensors out. Knows nothing of ranks,
// devices, optimizers or losses.
class Model : public torch::nn::Module {
 public:
  // One tensor in, one tensor out: (B, ...) -> (B, num_classes), for instance. It is
  // enough to write this one; or forward_named() instead.
  virtual torch::Tensor forward(const torch::Tensor& input);

  // The tensors of inputs() -> what the task looks at. Unless overridden: forward() of
  // "input", as "output".
  virtual Named forward_named(const Named& inputs);

  // The tensors of a batch that forward_named() is given; those of a sample, and
  // "<name>_mask" of one whose length varies.
  virtual std::vector<std::string> inputs() const { return {"input"}; }

  // Of a model that computes its gradients itself; else none: autograd does.
  virtual OwnBackward* own_backward() noexcept { return nullptr; }

  // The layout in which parameters and inputs make this model fastest.
  virtual torch::MemoryFormat memory_format() const {
    return torch::MemoryFormat::Contiguous;
  }

  // Activations of every n-th block are computed again in the backward pass instead of
  // being kept: less memory, more time, the same bits. 0: all are kept.
  void recompute_every(int n) noexcept { recompute_every_ = n; }
  int recompute_every() const noexcept { return recompute_every_; }
  // 0: there is nothing that could be computed again.
  std::size_t num_blocks() const noexcept { return blocks_.size(); }
  const torch::nn::Module& block(std::size_t i) const { return *blocks_[i].module; }

  // Called with the input of each block, and with the output of the last one, as
  // forward() comes to it. Empty: nobody is.
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
};

// Builds the model that a recipe names; its initial values come from torch's default
// generator. Throws Fault::config for a name that does not exist or a shape that the
// model can not take.
std::shared_ptr<Model> build(const config::ModelConfig& config, const Shape& shape);

// The constructors behind build(): a new model is a new file, a line here and a line in
// registry.cpp.
std::shared_ptr<Model> make_cnn(const config::ModelConfig& config, const Shape& shape);
std::shared_ptr<Model> make_gpt(const config::ModelConfig& config, const Shape& shape);
std::shared_ptr<Model> make_mlp(const config::ModelConfig& config, const Shape& shape);
std::shared_ptr<Model> make_resnet9(const config::ModelConfig& config,
                                    const Shape& shape);
std::shared_ptr<Model> make_resnet18(const config::ModelConfig& config,
                                     const Shape& shape);
std::shared_ptr<Model> make_resnet34(const config::ModelConfig& config,
                                     const Shape& shape);
std::shared_ptr<Model> make_resnet50(const config::ModelConfig& config,
                                     const Shape& shape);
std::shared_ptr<Model> make_torchscript(const config::ModelConfig& config,
                                        const Shape& shape);

}  // namespace lockstep::models
