#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/storage/torch_file.h"

namespace lockstep::storage {

// PyTorch's tensors have at most as many.
inline constexpr std::size_t kMostTensorDimensions = 64;

// A value that a pickle may hold here.
struct PickleValue {
  enum class Kind {
    none,
    boolean,
    integer,
    real,
    text,
    sequence,  // a tuple or a list
    dict,
    name,     // a name in a module: "torch.FloatStorage"
    storage,  // `text` is its key, `global` its class
    tensor
  };
  Kind kind = Kind::none;
  std::int64_t integer = 0;
  std::string text;
  std::string global;
  std::vector<const PickleValue*> items;
  std::vector<std::pair<const PickleValue*, const PickleValue*>> pairs;
  std::unique_ptr<TorchTensor> tensor;
};

// A pickle as a tree of values, which it owns.
struct Pickle {
  std::deque<PickleValue> values;
  const PickleValue* top = nullptr;
};

// Finds the bytes of a storage by its key and sets storage_begin and storage_bytes;
// false if there is none.
using FindStorage = std::function<bool(const std::string& key, TorchTensor& tensor)>;

// Takes only operations that build plain values and tensors; Fault::io, beginning with
// `place`, for all others.
Pickle read_pickle(std::string_view bytes, const FindStorage& find,
                   const std::string& place);

// Returns the class of torch that holds such elements: "F32" -> "FloatStorage".
std::optional<std::string> storage_class(std::string_view dtype);

// Builds a tensor from the arguments of torch._utils._rebuild_tensor_v2 or _v3: its
// shape and strides lie within the storage. Throws Error without a place.
TorchTensor rebuilt_tensor(const std::string& function, const PickleValue& arguments,
                           const FindStorage& find);

}  // namespace lockstep::storage
