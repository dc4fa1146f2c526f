#pragma once

#include <vector>

#include <torch/torch.h>

#include "lockstep/comm/communicator.h"
#include "lockstep/parallel/layout.h"

namespace lockstep::parallel::detail {

// The flat buffers of a layout, and the parameters as views of them.
//
// Lifetime: the list of parameters outlives it.
class FlatBuffers {
 public:
  struct Kind {
    comm::Communicator& data;
    bool values_travel = false;
    bool has_gradients = true;  // false: buckets of them live elsewhere
    bool has_values = true;     // likewise
  };
  // Moves the parameters in; their gradients too, where they have one. Memory that
  // travels is where `kind.data` moves it fastest: gradients, and values if they do.
  // Collective.
  FlatBuffers(const std::vector<Parameter>& parameters, std::vector<Group> groups,
              const Kind& kind);

  const std::vector<Group>& groups() const noexcept { return groups_; }
  torch::Tensor& values(std::size_t group) { return values_[group]; }
  torch::Tensor& gradients(std::size_t group) { return gradients_[group]; }
  std::vector<torch::Tensor>& all_values() noexcept { return values_; }
  std::vector<torch::Tensor>& all_gradients() noexcept { return gradients_; }

  const torch::Tensor& parameter(std::size_t index) const {
    return parameters_[index].tensor;
  }

  // Returns the piece of the gradients that belongs to a bucket.
  torch::Tensor bucket(std::size_t group, const Bucket& bucket) const;
  // Returns a parameter's gradient, with the shape and strides of the parameter.
  const torch::Tensor& gradient_of(std::size_t parameter) const {
    return gradient_views_[parameter];
  }

  // Puts a gradient from elsewhere into its place.
  void fill_gradient(std::size_t parameter, const torch::Tensor& from) const;
  // Does the same for several of a GPU, in few launches.
  void fill_gradients(const std::vector<std::size_t>& parameters,
                      const std::vector<torch::Tensor>& from) const;

 private:
  const std::vector<Parameter>& parameters_;
  std::vector<Group> groups_;
  std::vector<torch::Tensor> values_, gradients_;  // by group
  std::vector<torch::Tensor> gradient_views_;      // by parameter
};

}  // namespace lockstep::parallel::detail
