#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/comm/join.h"
#include "lockstep/config/config.h"
#include "lockstep/generate/decoder.h"
#include "lockstep/models/model.h"
#include "lockstep/parallel/strategy.h"
#include "lockstep/tokenizer/tokenizer.h"
#include "lockstep/train/report.h"

namespace lockstep::train {

// Texts that the model continues while it is trained (eval.prompts), so that a person
// sees what it has learnt.
//
// Lifetime: model and reporter outlive it.
class Prompts {
 public:
  // The ranks of the job, of which the first computes.
  struct Ranks {
    comm::World& world;
    parallel::Strategy& strategy;
  };

  // Reads the tokenizer if there are prompts. Throws Fault::config for a model that
  // generates no text, and for prompts that leave no room in its context.
  struct Knobs {
    const config::EvalConfig& eval;
    const config::ModelConfig& model;
    const config::DataConfig& data;
  };
  Prompts(const Knobs& knobs, const models::Model& model, Reporter& reporter);

  bool are_there() const noexcept { return words_.has_value(); }

  // Continues each with the weights as they are, and reports it. Where parameters are
  // sharded the other ranks take part in each pass, so that no more than some blocks
  // are whole at a time. Collective.
  void show(std::int64_t step, const Ranks& ranks) const;

 private:
  void show_on_first(std::int64_t step, generate::GptWeights weights) const;
  generate::GptWeights gathered_weights(const Ranks& ranks) const;

  const config::EvalConfig config_;
  const std::int64_t heads_;
  std::optional<tokenizer::Tokenizer> words_;  // none: there are no prompts
  const models::Model& model_;
  Reporter& reporter_;
};

}  // namespace lockstep::train
