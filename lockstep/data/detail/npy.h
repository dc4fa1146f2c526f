#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "lockstep/data/detail/mapped_file.h"

// Arrays as numpy.save() and numpy.savez() write them.
namespace lockstep::data::detail {

// An array of a file.
struct StoredArray {
  std::string name;  // the key in an .npz file; "" in an .npy file
  torch::Tensor tensor;
};

// Returns the array of an .npy file. Its values stay in the file, which is mapped as
// long as the tensor lives. Throws Fault::io, naming the file.
torch::Tensor read_npy(const std::string& path);

// Returns the arrays of an .npz file. Those that are not compressed stay in it, unless
// a zip file has them at a place where their type can not lie: then they are copied.
std::vector<StoredArray> read_npz_arrays(const std::string& path);

}  // namespace lockstep::data::detail
