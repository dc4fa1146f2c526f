#pragma once

#include <cstdint>

#include <torch/torch.h>

namespace lockstep::models {

// torch::nn::Dropout, which can draw from a generator of its own. Ranks that are
// threads of one process would share torch's default one: no run would be like another.
class DropoutImpl : public torch::nn::Cloneable<DropoutImpl> {
 public:
  explicit DropoutImpl(double probability) : probability_(probability) {}

  void reset() override {}
  void pretty_print(std::ostream& stream) const override;

  torch::Tensor forward(const torch::Tensor& input);

  // From now on draws from this one; none: torch's default.
  void use(at::Generator generator) { generator_ = std::move(generator); }
  const at::Generator& generator() const noexcept { return generator_; }

 private:
  double probability_;
  at::Generator generator_;
};
TORCH_MODULE(Dropout);

// Gives every dropout of a model one generator, seeded with `seed`.
void seed_dropout(torch::nn::Module& model, std::uint64_t seed,
                  const torch::Device& device);

}  // namespace lockstep::models
