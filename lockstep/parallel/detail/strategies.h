#pragma once

#include <memory>

#include "lockstep/parallel/strategy.h"

// The constructors behind make_strategy().
namespace lockstep::parallel::detail {

// Makes the strategy with the whole model on every rank: single for one rank, ddp
// between processes, data_parallel between threads.
std::unique_ptr<Strategy> make_replicated(const StrategyParts& parts);

}  // namespace lockstep::parallel::detail
