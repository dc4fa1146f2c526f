#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/config/auto.h"
#include "lockstep/config/field.h"
#include "lockstep/config/gpt_sizes.h"

namespace lockstep::config {

// The only list of models: X(name, input) is made by models::make_name() and reads
// `numbers` (images, features), `tokens` or `anything`. It stands here so that a recipe
// can be checked without LibTorch.
#define LOCKSTEP_MODELS(X) \
  X(cnn, numbers)          \
  X(gpt, tokens)           \
  X(mlp, numbers)          \
  X(resnet9, numbers)      \
  X(resnet18, numbers)     \
  X(resnet34, numbers)     \
  X(resnet50, numbers)     \
  X(torchscript, anything)

#define LOCKSTEP_NAME(name, input) std::string_view(#name),
inline constexpr std::array kModels{LOCKSTEP_MODELS(LOCKSTEP_NAME)};
#undef LOCKSTEP_NAME

struct ModelConfig {
  std::string name = "cnn";
  std::string size{kCustomSize};
  std::int64_t hidden = 256;
  std::int64_t layers = 2;
  std::int64_t heads = 4;
  std::int64_t context = 0;
  std::int64_t pad_vocabulary = 1;
  double dropout = 0.0;
  Auto<bool> own_backward;
  std::string weights;
  std::string file;
  std::vector<std::string> inputs = {"input"};
  std::vector<std::string> outputs = {"output"};
};

template <typename Visitor>
void describe(ModelConfig& c, Visitor& v) {
  v.field("name", c.name, {.help = "The model to train.", .choices = kModels});
  v.field("size", c.size,
          {.help = "gpt: a named size, which sets model.hidden, layers and heads.",
           .choices = kGptSizeNames,
           .needs = "model.name=gpt"});
  v.field("hidden", c.hidden,
          {.help = "Width of the hidden layers; of the gpt, of its embeddings.",
           .range = between(1, 65536),
           .unit = Unit::units,
           .needs = "model.name=cnn|gpt|mlp"});
  v.field("layers", c.layers,
          {.help = "Hidden layers of the mlp, blocks of the gpt.",
           .range = between(1, 1000),
           .unit = Unit::layers,
           .needs = "model.name=gpt|mlp"});
  v.field("heads", c.heads,
          {.help = "Heads of the gpt's attention; a divisor of model.hidden.",
           .range = between(1, 1024),
           .needs = "model.name=gpt"});
  v.field("context", c.context,
          {.help = "gpt: context length, the number of positions; no sample may have "
                   "more tokens; 0: as many as a sample has.",
           .range = between(0, 1 << 24),
           .needs = "model.name=gpt"});
  v.field("pad_vocabulary", c.pad_vocabulary,
          {.help = "gpt: pad the vocabulary to a multiple, for example 64, which is "
                   "faster on GPUs; outputs and exports do not have the padding.",
           .range = between(1, 65536),
           .affects = Affects::speed,
           .needs = "model.name=gpt"});
  v.field("dropout", c.dropout,
          {.help = "Dropout probability.",
           .range = from_to_below(0, 1),
           .needs = "model.name=cnn|gpt|mlp|resnet9"});
  v.field("own_backward", c.own_backward,
          {.help = "gpt and mlp: hand-written forward and backward passes instead of "
                   "autograd. auto: for the gpt on a GPU with "
                   "precision.mode=bf16_params, where possible; decided at start.",
           .affects = Affects::speed,
           .task_decides = true,
           .needs = "model.name=gpt|mlp"});
  v.field(
      "weights", c.weights,
      {.help = "Pretrained weights to start from: a safetensors file, the directory of "
               "a Hugging Face GPT-2, or a name of `lockstep models list`; empty: "
               "random ones. checkpoint.allow_missing and checkpoint.ignore apply.",
       .is_local = true});
  v.field("file", c.file,
          {.help = "torchscript: the file that torch.jit.save has written.",
           .needs = "model.name=torchscript",
           .is_local = true});
  v.field(
      "inputs", c.inputs,
      {.help = "torchscript: the tensors of a sample that forward() takes, in order.",
       .needs = "model.name=torchscript"});
  v.field("outputs", c.outputs,
          {.help = "torchscript: names of the tensors that it returns, in order; a "
                   "dictionary has its own names.",
           .needs = "model.name=torchscript"});
}

}  // namespace lockstep::config
