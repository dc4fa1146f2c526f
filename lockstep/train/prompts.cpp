#include "lockstep/train/prompts.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/generate/generate.h"
#include "lockstep/models/lora.h"

namespace lockstep::train {
namespace {

// Tells every rank what rank 0 says: whether another pass comes. Collective.
bool agree(const Prompts::Ranks& ranks, bool goes_on) {
  const auto flag = torch::tensor({goes_on ? 1 : 0}, torch::kInt32);
  ranks.world.cpu().broadcast(flag, 0).wait();
  return flag.item<int>() != 0;
}

// Takes part in the passes of rank 0, until it has no more.
void attend(const Prompts::Ranks& ranks) {
  while (agree(ranks, /*goes_on=*/false)) ranks.strategy.empty_forward();
}

// Rank 0: computes what has passes, and lets the other ranks go, also where computing
// fails between two passes: they wait for the next one.
void lead(const Prompts::Ranks& ranks, const std::function<void()>& compute) {
  try {
    compute();
  } catch (...) {
    try {
      agree(ranks, /*goes_on=*/false);
    } catch (const std::exception& error) {
      // The first error says more: this one is of the connection it may have cut.
      log::debug("train", str("prompts: ", error.what()));
    }
    throw;
  }
  agree(ranks, /*goes_on=*/false);
}

}  // namespace

Prompts::Prompts(const Knobs& knobs, const models::Model& model, Reporter& reporter)
    : config_(knobs.eval),
      heads_(knobs.model.heads),
      model_(model),
      reporter_(reporter) {
  if (config_.prompts.empty()) return;
  if (knobs.model.name != "gpt" || knobs.data.text.tokenizer.empty()) {
    throw Error(Fault::config, "eval.prompts: ",
                knobs.model.name != "gpt" ? "only model.name=gpt continues texts"
                                          : "data.tokenizer is not set, which turns "
                                            "them into tokens",
                "; leave eval.prompts out, or correct it");
  }
  words_ = tokenizer::Tokenizer::load(knobs.data.text.tokenizer);
  const auto* positions = model.named_parameters().find("wpe.weight");
  const auto context = positions == nullptr ? 0 : positions->size(0);
  for (const auto& prompt : config_.prompts) {
    const auto tokens = static_cast<std::int64_t>(words_->encode(prompt).size());
    if (tokens < context) continue;
    throw Error(Fault::config, "eval.prompts: '", prompt, "' has ", tokens,
                " tokens, the model's context ", context, "; shorten it");
  }
}

// Shapes and types are those of the parameters, also of those that have no memory.
generate::GptWeights Prompts::gathered_weights(const Ranks& ranks) const {
  generate::GptWeights weights;
  for (const auto& item : model_.named_parameters()) {
    weights.tensors[item.key()] = item.value().detach();
  }
  std::map<std::string, std::function<torch::Tensor()>> values;
  for (auto& [name, value] : models::merged_tensors(model_)) {
    values.emplace(name, std::move(value));
  }
  weights.in_passes = {
      .run =
          [ranks](const auto& pass) {
            agree(ranks, /*goes_on=*/true);
            ranks.strategy.forward(pass);
          },
      .run_layer =
          [&strategy = ranks.strategy](std::size_t layer, const auto& compute,
                                       const torch::Tensor& x) {
            return strategy.run_block(layer, compute, x);
          },
      .weight = [values = std::move(values)](
                    const std::string& name) { return values.at(name)().detach(); }};
  return weights;
}

void Prompts::show(std::int64_t step, const Ranks& ranks) const {
  if (!words_) return;
  const bool is_first = ranks.world.rank() == 0;
  if (!ranks.strategy.forwards_must_match()) {
    ranks.strategy.settle();
    if (!is_first) return;
    generate::GptWeights weights;
    for (const auto& [name, tensor] : models::merged_state(model_)) {
      weights.tensors[name] = tensor.detach();
    }
    return show_on_first(step, std::move(weights));
  }
  if (!is_first) return attend(ranks);
  lead(ranks, [&] { show_on_first(step, gathered_weights(ranks)); });
}

void Prompts::show_on_first(std::int64_t step, generate::GptWeights weights) const {
  weights.heads = heads_;
  weights.vocabulary = static_cast<std::int64_t>(words_->size());
  generate::Decoder decoder(std::move(weights));
  const auto texts = generate::generate(
      {decoder, *words_}, config_.prompts,
      {.max_tokens = config_.prompt_tokens, .sampling = {.temperature = 0}});
  for (std::size_t i = 0; i < texts.size(); ++i) {
    reporter_.sample(step, config_.prompts[i], texts[i].text);
  }
}

}  // namespace lockstep::train
