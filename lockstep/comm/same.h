#pragma once

#include <string_view>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/wire.h"

namespace lockstep::comm {

// Compares a list between the ranks, in its order: a model's parameters, say, with the
// shape and dtype of each. If they differ, every rank throws the same error
// (Fault::config) with the first difference: what, on which ranks, and the values.
//
// Collective; `cpu` is a communicator of CPU tensors. `what` names an item of the list:
// "parameter".
void check_same(Communicator& cpu, std::string_view what,
                const std::vector<wire::Fact>& list);

// Returns the names, dtypes, shapes and layouts of a module's parameters, in order.
std::vector<wire::Fact> facts_of(const torch::nn::Module& module);

}  // namespace lockstep::comm
