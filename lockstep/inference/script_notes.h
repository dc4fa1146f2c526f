#pragma once

#include <string>

#include "lockstep/data/dataset.h"
#include "lockstep/data/named.h"
#include "lockstep/task/task.h"

namespace lockstep::inference {

// A model as a program, with tensors that it was tried with.
struct ScriptFacts {
  const task::Task& task;
  const data::SampleSpec& spec;
  const Named& inputs;
  const Named& outputs;
};

// Returns what a reader of a program has to know to use it, as one JSON object: the
// task, each input (name, shape with "batch" first, dtype, and where it is made of
// other values how: seen = stored * scale + shift), each output, the names of classes.
std::string script_notes(const ScriptFacts& facts);

}  // namespace lockstep::inference
