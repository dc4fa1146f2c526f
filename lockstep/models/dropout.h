#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <torch/torch.h>

#include "lockstep/kernels/dropout.h"

namespace lockstep::models {

// The samples of a forward pass. Dropout of a sample follows from the seed, the epoch,
// the sample's place in it and the layer: not from the split of a batch into
// micro-batches or over ranks, nor from earlier draws.
class SamplePass {
 public:
  explicit SamplePass(std::uint64_t seed) noexcept : seed_(seed) {}

  // `first`: the place in the epoch of the first of `size` samples.
  void begin(std::int64_t epoch, std::int64_t first, std::int64_t size) noexcept;

  // Returns the place that begin() makes of its arguments.
  kernels::PassPlace place_of(std::int64_t epoch, std::int64_t first) const noexcept;

  // From now on the passes that are begun find their places in memory of a GPU, one
  // after the other: a CUDA graph that holds them reads these anew at every replay.
  // nullptr: that is over.
  void use_places(const kernels::PassPlace* first) noexcept;

  std::uint64_t key() const noexcept { return place_.key; }
  std::int64_t first() const noexcept { return place_.first_sample; }
  std::int64_t size() const noexcept { return size_; }
  std::uint64_t number() const noexcept { return number_; }  // of passes so far
  const kernels::PassPlace* on_device() const noexcept { return on_device_; }

 private:
  std::uint64_t seed_;
  std::uint64_t number_ = 0;
  kernels::PassPlace place_;
  std::int64_t size_ = 0;
  const kernels::PassPlace* on_device_ = nullptr;       // of this pass
  const kernels::PassPlace* next_on_device_ = nullptr;  // of the next one
};

// torch::nn::Dropout; one that follows a SamplePass draws by sample, else from torch's
// default generator.
class DropoutImpl : public torch::nn::Cloneable<DropoutImpl> {
 public:
  explicit DropoutImpl(double probability) : probability_(probability) {}

  void reset() override {}
  void pretty_print(std::ostream& stream) const override;

  torch::Tensor forward(const torch::Tensor& input);

  // `layer` tells the dropouts of a model apart.
  void follow(std::shared_ptr<const SamplePass> pass, std::uint64_t layer);
  bool follows() const noexcept { return pass_ != nullptr; }

  // Returns how often it has been called in this pass; put back to compute a block
  // again.
  std::int64_t calls() const noexcept;
  void set_calls(std::int64_t calls) noexcept;

 private:
  double probability_;
  std::shared_ptr<const SamplePass> pass_;
  std::uint64_t layer_ = 0;
  std::uint64_t counted_ = 0;  // the pass that calls_ is of
  std::int64_t calls_ = 0;
};
TORCH_MODULE(Dropout);

std::vector<DropoutImpl*> find_dropouts(const torch::nn::Module& module);

// Returns whether a dropout of it, ours or LibTorch's, draws from torch's default
// generator.
bool draws_from_torch(const torch::nn::Module& module);

// Makes every dropout of the model follow the returned pass, which the caller begins
// before each forward pass.
std::shared_ptr<SamplePass> draw_by_sample(const torch::nn::Module& model,
                                           std::uint64_t seed);

}  // namespace lockstep::models
