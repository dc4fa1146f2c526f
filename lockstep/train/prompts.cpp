#include "lockstep/train/prompts.h"

#include "lockstep/base/error.h"
#include "lockstep/generate/generate.h"
#include "lockstep/models/lora.h"

namespace lockstep::train {
namespace {

generate::Decoder make_decoder(const models::Model& model, std::int64_t heads,
                               const tokenizer::Tokenizer& words) {
  generate::GptWeights weights{.heads = heads,
                               .vocabulary = static_cast<std::int64_t>(words.size()),
                               .tensors = {}};
  for (auto& [name, tensor] : models::merged_state(model)) {
    weights.tensors[name] = tensor.detach();
  }
  return generate::Decoder(std::move(weights));
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

void Prompts::show(std::int64_t step) const {
  if (!words_) return;
  auto decoder = make_decoder(model_, heads_, *words_);
  const auto texts = generate::generate(
      {decoder, *words_}, config_.prompts,
      {.max_tokens = config_.prompt_tokens, .sampling = {.temperature = 0}});
  for (std::size_t i = 0; i < texts.size(); ++i) {
    reporter_.sample(step, config_.prompts[i], texts[i].text);
  }
}

}  // namespace lockstep::train
