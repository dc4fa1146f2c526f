#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::generate {

// How the next token is chosen from its logits; the steps and their order are those of
// transformers: repetition penalty, temperature, top_k, top_p.
struct SamplerOptions {
  double temperature = 1;         // 0: always the most likely one
  std::int64_t top_k = 0;         // among the k most likely ones; 0: all
  double top_p = 1;               // among the most likely ones with this share of all
  double repetition_penalty = 1;  // above 1: less likely what was there before
  std::uint64_t seed = 0;
};

// Chooses the tokens of one text. What it draws follows from the seed, the text's
// number and the place in it: not from the texts beside it.
class TokenSampler {
 public:
  TokenSampler(const SamplerOptions& options, std::int64_t text);

  // Returns the next token. `before` are the tokens so far, the prompt's included.
  std::int64_t next(std::span<const float> logits,
                    std::span<const std::int64_t> before);

 private:
  double draw(std::uint64_t place) const;  // in [0, 1)

  SamplerOptions options_;
  std::uint64_t key_;
  std::vector<float> scores_;
  std::vector<std::int64_t> order_;
};

}  // namespace lockstep::generate
