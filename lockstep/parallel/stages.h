#pragma once

#include <array>
#include <cstddef>

namespace lockstep::parallel {

enum class Held { whole, sharded };

// What a rank holds of each thing that belongs to a parameter: all of it, or its shard.
struct Stage {
  Held values = Held::whole;
  Held gradients = Held::whole;
  Held state = Held::whole;  // what the optimizer remembers

  // A rank changes its shard only. So it needs the sum of its shard of the gradients
  // (reduce_scatter, not all_reduce), and the others need what it has changed.
  bool shards_update() const noexcept { return state == Held::sharded; }
};

// The strategies as a table: 0 is DDP, the others are ZeRO's stages. What the engine
// does follows from the row that it was given.
inline constexpr std::array<Stage, 4> kStages = {{
    {Held::whole, Held::whole, Held::whole},
    {Held::whole, Held::whole, Held::sharded},
    {Held::whole, Held::sharded, Held::sharded},
    {Held::sharded, Held::sharded, Held::sharded},
}};

}  // namespace lockstep::parallel
