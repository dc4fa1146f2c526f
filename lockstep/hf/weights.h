#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/hf/gpt2.h"
#include "lockstep/storage/layout.h"

namespace lockstep::hf {

// Tensors of which file and model need not agree, by patterns as in
// text::matches_any().
struct Exceptions {
  std::string allow_missing;  // the file need not have them
  std::string ignore;         // it may have them, of whatever shape
};

// Returns the files of a folder that hold its weights: one, or those of an index.
// Throws Fault::io if there are none, or one of the index is not there.
std::vector<Path> weight_files(const Path& folder);

// The weights of a folder by our names and in our layout: model.safetensors or
// pytorch_model.bin, whole or in the shards of an index, with or without the prefix.
//
// Threads: any number.
class Weights {
 public:
  struct Tensor {
    std::string name;
    std::string dtype;  // of safetensors
    storage::Shape shape;
  };

  // Reads config.json and the headers of the files, and a head of its own, which has
  // to equal the embedding. All errors name the file and the remedy.
  explicit Weights(const Path& folder);
  ~Weights();
  Weights(Weights&&) noexcept;

  const Gpt2& model() const noexcept;
  const std::vector<Tensor>& tensors() const noexcept;

  // Throws Fault::config, in one line, for the first tensor that is missing, has
  // another shape than config.json gives it, or is none of the model's.
  void check(const Exceptions& exceptions) const;

  // Fills `out`, row-major, with tensors()[index].
  void read(std::size_t index, std::span<std::byte> out) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::hf
