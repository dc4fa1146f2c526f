#pragma once

#include <cstdint>
#include <string>

#include "lockstep/config/field.h"

namespace lockstep::config {

// Low-rank adapters: the weights stay as they are, and a product of two small matrices
// beside each is trained.
struct LoraConfig {
  std::int64_t rank = 0;
  double alpha = 16;
  double dropout = 0;
  std::string targets = "*.c_attn";
  std::string weights;
};

template <typename Visitor>
void describe(LoraConfig& c, Visitor& v) {
  v.field("rank", c.rank,
          {.help = "Rank of the adapters; 0: none, all weights are trained.",
           .range = between(0, 4096)});
  v.field("alpha", c.alpha,
          {.help = "The adapters' output is multiplied by lora.alpha / lora.rank.",
           .range = above(0),
           .needs = "lora.rank>0"});
  v.field("dropout", c.dropout,
          {.help = "Dropout of an adapter's inputs.",
           .range = from_to_below(0, 1),
           .needs = "lora.rank>0"});
  v.field("targets", c.targets,
          {.help = "Target modules: patterns of layer names, separated by commas: "
                   "*.c_attn,*.c_proj.",
           .needs = "lora.rank>0"});
  v.field("weights", c.weights,
          {.help = "A directory of adapters to start from, as PEFT writes it "
                   "(adapter_config.json, adapter_model.safetensors); empty: new ones, "
                   "which change nothing at first.",
           .needs = "lora.rank>0",
           .is_local = true});
}

}  // namespace lockstep::config
