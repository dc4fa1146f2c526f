#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/task/fields.h"
#include "lockstep/task/task.h"

namespace lockstep::task {

// A task that predicts the next token. The output is (B, T, vocabulary) scores, the
// target (B, T) tokens: the data set has moved them by one already. Fields::mask limits
// the loss to a span, such as the answer to a question. Primary: perplexity. While
// training there is nothing but the loss: no step looks for the most likely token.
struct LanguageModelOptions {
  Fields fields = {};
  std::string bytes = "";  // field with the bytes of each target; "": none
  CrossEntropyOptions loss = {};
  std::int64_t vocabulary = 0;  // 0: any
  std::int64_t per_sample = 1;  // tokens of a sample
  MetricChoice measured = {};
};

// Throws Fault::config for metrics that tokens do not have.
std::shared_ptr<Task> make_language_model(const LanguageModelOptions& options);

}  // namespace lockstep::task
