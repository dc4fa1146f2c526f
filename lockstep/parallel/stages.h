#pragma once

#include <array>
#include <cstddef>

namespace lockstep::parallel {

enum class Held { whole, sharded };

// The parts of a parameter that a rank holds: each as a whole, or its shard.
struct Stage {
  Held values = Held::whole;
  Held gradients = Held::whole;
  Held state = Held::whole;  // of the optimizer

  // Returns whether a rank changes its shard only. Then it needs the sum of its shard
  // of the gradients (reduce_scatter, not all_reduce), and the others need its values.
  bool shards_update() const noexcept { return state == Held::sharded; }
  // Returns whether a bucket of gradients lives only until its sum is in the shards.
  bool shards_gradients() const noexcept { return gradients == Held::sharded; }
  // Returns whether the values of a unit live only while it computes.
  bool shards_values() const noexcept { return values == Held::sharded; }
};

// The strategies as a table: 0 is DDP, the others are ZeRO's stages. The engine's
// behaviour follows from the row that it was given.
inline constexpr std::array<Stage, 4> kStages = {{
    {Held::whole, Held::whole, Held::whole},
    {Held::whole, Held::whole, Held::sharded},
    {Held::whole, Held::sharded, Held::sharded},
    {Held::sharded, Held::sharded, Held::sharded},
}};

}  // namespace lockstep::parallel
