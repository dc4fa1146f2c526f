#pragma once

#include <string>
#include <vector>

#include <torch/torch.h>

#include "lockstep/config/eval.h"
#include "lockstep/data/named.h"
#include "lockstep/task/losses.h"

namespace lockstep::task {

// The names of the tensors that a loss compares: in the outputs of a model and in a
// batch.
struct Fields {
  std::string output = "output";
  std::string target = "target";
  std::string mask = "";    // of targets that count, where it is not 0; "": all
  std::string weight = "";  // of targets; "": 1
};

// Returns those that are in a batch.
std::vector<std::string> fields_of_batch(const Fields& fields);

// Returns the mask and the weights of a batch, for targets of this shape. Where they
// have fewer dimensions, an entry is that of all targets below it: (B) is one for each
// sample. Throws Fault::config if the shapes do not fit.
Counted counted_in(const Named& batch, const Fields& fields, at::IntArrayRef shape);

// The metrics of an evaluation, beside those that a task always measures.
struct MetricChoice {
  std::vector<config::EvalMetric> metrics = {};
  std::int64_t top_k = 5;
  std::string primary = "";  // name of a value; "": the task's own
};

}  // namespace lockstep::task
