#pragma once

#include <optional>
#include <vector>

#include "lockstep/models/recompute.h"
#include "tests/parallel/unit_rig.h"

// A net of blocks that are units, with what real ones have.
namespace lockstep::test::units {

// A block with what real ones have: a weight and a bias, a frozen weight, an empty
// parameter, a residual path.
struct BlockImpl : torch::nn::Module {
  BlockImpl() {
    in = register_module("in", torch::nn::Linear(kWide, 2 * kWide));
    frozen = register_module("frozen", torch::nn::Linear(2 * kWide, 2 * kWide));
    out = register_module("out", torch::nn::Linear(2 * kWide, kWide));
    empty = register_parameter("empty", torch::zeros({0, 3}));
    frozen->weight.requires_grad_(false);
  }
  Tensor forward(const Tensor& x) {
    const auto h = torch::tanh(frozen->forward(torch::relu(in->forward(x))));
    return x + out->forward(h) + empty.sum();
  }
  torch::nn::Linear in{nullptr}, frozen{nullptr}, out{nullptr};
  Tensor empty;
};
TORCH_MODULE(Block);

struct StackPass {
  bool recomputes = false;
  std::optional<std::size_t> skipped = {};
};

// An embedding that is the head, too, and blocks between.
struct StackImpl : torch::nn::Module {
  StackImpl() {
    tied = register_parameter("tied", torch::randn({kIn, kWide}).mul_(0.3));
    for (std::size_t i = 0; i < 4; ++i) {
      blocks.push_back(register_module(::lockstep::str("block", i), Block()));
    }
    scale = register_parameter("scale", torch::ones({}));
  }

  Tensor forward(const Tensor& x, Engine* engine, const StackPass& how = {}) {
    auto h = torch::mm(x, tied);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (how.skipped == i) continue;
      auto& block = blocks[i];
      const auto plain = [&block](const Tensor& in) { return block->forward(in); };
      const auto compute = [&](const Tensor& in) {
        return how.recomputes ? models::recomputed(*block, plain, in) : plain(in);
      };
      h = engine->run_unit(i, compute, h);
    }
    return torch::mm(h, tied.t()) * scale;
  }

  std::vector<const torch::nn::Module*> units() const {
    std::vector<const torch::nn::Module*> list;
    for (const auto& block : blocks) list.push_back(&*block);
    return list;
  }

  Tensor tied, scale;
  std::vector<Block> blocks;
};
TORCH_MODULE(Stack);

}  // namespace lockstep::test::units
