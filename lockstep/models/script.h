#pragma once

#include <filesystem>
#include <string>

#include "lockstep/data/named.h"
#include "lockstep/models/model.h"

namespace torch::jit {
struct Module;
}

namespace lockstep::models {

// Where a program is written, and what is kept with it: the extra file `lockstep.json`.
struct ScriptFile {
  std::filesystem::path path;
  std::string notes;
};

// Writes the model as a TorchScript program that needs nothing of Lockstep: forward()
// takes the tensors of inputs() and returns the model's output, or a dictionary where
// it has several. It is the evaluation's pass, for any number of samples.
//
// `samples` are inputs of two samples or more, on the CPU. What was written is loaded
// again and has to compute what the model does: of all of them, of the first alone and
// of twice as many. Throws Fault::config for a model whose program does not.
void write_script(Model& model, const Named& samples, const ScriptFile& file);

// Returns the program of a model that is one already; else null.
const torch::jit::Module* script_of(const Model& model);

}  // namespace lockstep::models
