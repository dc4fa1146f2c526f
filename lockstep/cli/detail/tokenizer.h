#pragma once

#include <cstddef>
#include <string>

#include "lockstep/cli/command.h"
#include "lockstep/tokenizer/tokenizer.h"

// What `lockstep tokenizer` and `lockstep tokenize` share.
namespace lockstep::cli {

// Returns --threads, or the number of cores that this process may use.
std::size_t thread_count(const Arguments& arguments);

// Returns --special; refusing them is the default.
tokenizer::Special special_of(const Arguments& arguments);

Option special_option();
Option threads_option();
Option field_option();

// Returns the path of a file to read; "-" is standard input.
std::string input_path(const std::string& word);

int train_tokenizer(const Arguments& arguments, Context& context);

}  // namespace lockstep::cli
