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
          {.help = "Rank of the adapters; 0: none, the weights themselves are trained.",
           .range = between(0, 4096)});
  v.field("alpha", c.alpha,
          {.help = "The adapters' output is multiplied by lora.alpha / lora.rank.",
           .range = above(0),
           .needs = "lora.rank>0"});
  v.field("dropout", c.dropout,
          {.help = "Share of an adapter's inputs that training sets to zero.",
           .range = from_to_below(0, 1),
           .needs = "lora.rank>0"});
  v.field("targets", c.targets,
          {.help = "The layers with an adapter, by patterns of names separated by "
                   "commas: *.c_attn,*.c_proj.",
           .needs = "lora.rank>0"});
  v.field("weights", c.weights,
          {.help = "A folder of adapters to begin with, as PEFT writes it "
                   "(adapter_config.json, adapter_model.safetensors); empty: new ones, "
                   "which change nothing at first.",
           .needs = "lora.rank>0",
           .is_local = true});
}

}  // namespace lockstep::config
