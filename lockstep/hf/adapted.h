#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/config/config.h"
#include "lockstep/storage/layout.h"
#include "lockstep/storage/reader.h"

namespace lockstep::hf {

// The weights of a model whose checkpoint holds adapters alone: those that the run
// began with (model.weights), with the product of each adapter added to its layer.
//
// Threads: any number.
class AdaptedWeights {
 public:
  // `sources` are the tensors of the checkpoint by the model's names for them. Throws
  // Fault::config if the weights that the adapters belong to are gone.
  // Lifetime: the reader outlives it.
  AdaptedWeights(const config::Config& config, const storage::Reader& reader,
                 const std::map<std::string, std::string>& sources);
  ~AdaptedWeights();
  AdaptedWeights(AdaptedWeights&&) noexcept;

  // Returns the shape of a tensor by our name for it; Fault::config if there is none.
  storage::Shape shape(const std::string& name) const;

  // Returns the elements of a tensor, row-major, as float32.
  std::vector<float> read(const std::string& name) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::hf
