// Arrays of numpy: an .npz file, or .npy files, for each part or for both.
#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/detail/npy.h"
#include "lockstep/data/sources.h"
#include "lockstep/data/subset.h"
#include "lockstep/data/tensor_dataset.h"

namespace lockstep::data {
namespace {

using Path = std::filesystem::path;

// An array and where it comes from.
struct FoundArray {
  std::string where;  // "train.npz: 'x'"
  torch::Tensor tensor;
};
using Arrays = std::map<std::string, FoundArray>;  // by name

struct Parts {
  Arrays train, eval;
};

// Returns the name of an array without the words that say which part it is of: "x" of
// "x_train", "target_weight" of "train_target_weight", "" of "train".
std::string own_name(std::string_view name) {
  std::vector<std::string> words;
  std::string word;
  const auto end_word = [&] {
    const bool is_part = text::lower(word) == "train" || names_eval(word);
    if (!word.empty() && !is_part) words.push_back(word);
    word.clear();
  };
  for (const char letter : name) {
    if (letter == '_' || letter == '-' || letter == '.') {
      end_word();
    } else {
      word += letter;
    }
  }
  end_word();
  return text::join(words, "_");
}

// The arrays of a folder, each in its part.
class ArrayFinder {
 public:
  explicit ArrayFinder(const config::DataConfig& config)
      : config_(config),
        folder_(require_folder(config, "a folder of .npy or .npz files")) {}

  Parts find() {
    for (const auto& path : files()) {
      const auto relative =
          path == folder_ ? path.filename() : path.lexically_relative(folder_);
      if (path.extension() == ".npy") {
        add({relative, ""}, detail::read_npy(path.string()));
        continue;
      }
      for (auto& [key, tensor] : detail::read_npz_arrays(path.string())) {
        add({relative, key}, std::move(tensor));
      }
    }
    return std::move(parts_);
  }

 private:
  struct Origin {
    Path file;        // from the folder on
    std::string key;  // in an .npz file
  };

  std::vector<Path> files() const {
    if (std::filesystem::is_regular_file(folder_)) return {folder_};
    std::vector<Path> files;
    std::error_code error;
    using Walk = std::filesystem::recursive_directory_iterator;
    for (Walk at(folder_, error); !error && at != Walk(); at.increment(error)) {
      const auto kind = at->path().extension();
      std::error_code ignored;
      if ((kind == ".npy" || kind == ".npz") && at->is_regular_file(ignored)) {
        files.push_back(at->path());
      }
    }
    if (error) {
      throw Error(Fault::io, "data: '", folder_.string(),
                  "' cannot be read: ", error.message());
    }
    if (files.empty()) {
      throw Error(Fault::io, "data: '", folder_.string(),
                  "' has no .npy or .npz file; set data.dir to their folder");
    }
    std::sort(files.begin(), files.end());
    return files;
  }

  void add(const Origin& origin, torch::Tensor tensor) {
    const auto& [file, key] = origin;
    const auto stem = file.stem().string();
    const bool is_eval = names_eval((file.parent_path() / stem / key).string());
    const auto name = own_name(key.empty() ? stem : key);
    const auto where = key.empty() ? file.string() : file.string() + "': '" + key;
    auto& part = is_eval ? parts_.eval : parts_.train;
    const auto [at, is_new] = part.emplace(name, FoundArray{where, std::move(tensor)});
    if (is_new) return;
    throw Error(Fault::io, "data: '", at->second.where, "' and '", where,
                "' are both '", name, "' to ", is_eval ? "evaluate" : "train",
                " on; keep one of them");
  }

  const config::DataConfig& config_;
  Path folder_;
  Parts parts_;
};

std::string names_in(const Arrays& arrays) {
  std::vector<std::string> names;
  for (const auto& [name, array] : arrays) names.push_back(name);
  return text::join(names, ", ");
}

// The arrays that are input, target and weights.
class Roles {
 public:
  Roles(const config::TableData& config, const Arrays& train)
      : input_(chosen(train, {"data.input", config.input},
                      {"input", "inputs", "x", "X", "images", "image", "data"})),
        target_(chosen(train, {"data.target", config.target},
                       {"target", "targets", "y", "Y", "labels", "label"})),
        weight_(config.weight) {
    const bool is_weight_other = weight_ != input_ && weight_ != target_;
    if (input_ != target_ && is_weight_other) return;
    throw Error(Fault::config, input_ == target_ ? "data.target" : "data.weight",
                ": the array '", input_ == target_ ? target_ : weight_,
                "' has another role, too; name one for each");
  }

  const std::string& input() const { return input_; }
  const std::string& target() const { return target_; }

  // Returns the name of a field of samples.
  std::string role_of(const std::string& name) const {
    if (name == input_) return "input";
    if (name == target_) return "target";
    return name == weight_ ? "target_weight" : name;
  }

  // Returns whether an array has none of the roles, but is named like one that another
  // has: it would take that one's place in a sample.
  bool is_hidden(const std::string& name) const {
    if (name == input_ || name == target_ || name == weight_) return false;
    return name == "input" || name == "target" ||
           (name == "target_weight" && !weight_.empty());
  }

  void require_in(const Arrays& arrays, std::string_view purpose) const {
    for (const auto& name : {input_, target_, weight_}) {
      if (name.empty() || arrays.contains(name)) continue;
      throw Error(Fault::io, "data: there is no array '", name, "' ", purpose,
                  "; there are ", names_in(arrays));
    }
  }

 private:
  struct Wanted {
    std::string_view knob;
    const std::vector<std::string>& names;
  };

  static std::string chosen(const Arrays& arrays, const Wanted& wanted,
                            std::initializer_list<const char*> usual) {
    const auto& [knob, names] = wanted;
    if (names.size() > 1) {
      throw Error(Fault::config, knob, ": ", names.size(),
                  " names, but data.name=arrays takes one array; numpy.concatenate() "
                  "them, others of a sample are fields by their names");
    }
    if (!names.empty()) return names[0];
    for (const auto* name : usual) {
      if (arrays.contains(name)) return name;
    }
    throw Error(Fault::config, knob, ": none of the arrays ", names_in(arrays),
                " has a usual name; name one");
  }

  std::string input_, target_, weight_;
};

// Numbers are float32, unless they are whole.
torch::Tensor as_field(const torch::Tensor& tensor) {
  return c10::isFloatingType(tensor.scalar_type()) ? tensor.to(torch::kFloat32)
                                                   : tensor;
}

torch::Tensor as_input(const FoundArray& array) {
  auto tensor = as_field(array.tensor);
  if (tensor.scalar_type() == torch::kUInt8 && tensor.dim() == 3) {
    return tensor.unsqueeze(1);  // (N, H, W) are images of one channel
  }
  const auto is_color = [&](std::int64_t dim) {
    return tensor.size(dim) == 1 || tensor.size(dim) == 3;
  };
  if (tensor.scalar_type() == torch::kUInt8 && tensor.dim() == 4 && is_color(3) &&
      !is_color(1)) {
    throw Error(Fault::io, "data: '", array.where, "' has the shape ", tensor.sizes(),
                ", but images are (N, C, H, W); save x.transpose(0, 3, 1, 2)");
  }
  return tensor;
}

torch::Tensor as_target(torch::Tensor tensor) {
  if (c10::isFloatingType(tensor.scalar_type())) return as_field(tensor);
  if (tensor.dim() == 2 && tensor.size(1) == 1) tensor = tensor.squeeze(1);
  return tensor.dim() == 1 ? tensor.to(torch::kInt64) : tensor;
}

// Returns the number of classes of the training samples; 0 where targets are none.
std::int64_t classes_of(const torch::Tensor& target) {
  if (target.scalar_type() != torch::kInt64 || target.numel() == 0) return 0;
  if (target.min().item<std::int64_t>() < 0) return 0;
  return target.max().item<std::int64_t>() + 1;
}

// Bytes are scaled and other numbers are not, floats are regressed and whole numbers
// are classes: both parts have to be of one kind.
void check_kinds(const FoundArray& train, const FoundArray& eval, bool is_target) {
  const auto kind_of = [&](const FoundArray& array) {
    const auto dtype = array.tensor.scalar_type();
    return std::pair(c10::isFloatingType(dtype), !is_target && dtype == torch::kUInt8);
  };
  if (kind_of(train) == kind_of(eval)) return;
  throw Error(Fault::io, "data: '", eval.where, "' is of ", eval.tensor.dtype().name(),
              ", but '", train.where, "' of ", train.tensor.dtype().name(),
              "; save both as one dtype");
}

void check_classes(const FoundArray& array, std::int64_t classes) {
  const auto own = classes_of(as_target(array.tensor));
  if (classes == 0 || own <= classes) return;
  throw Error(Fault::io, "data: '", array.where, "' has the class ", own - 1,
              ", the training samples have 0 to ", classes - 1);
}

// Row i of every array is of sample i.
void check_rows(const Arrays& arrays, const std::string& input) {
  const auto rows = [](const FoundArray& array) {
    return array.tensor.dim() == 0 ? 0 : array.tensor.size(0);
  };
  const auto& first = arrays.at(input);
  for (const auto& [name, array] : arrays) {
    if (rows(array) == rows(first)) continue;
    throw Error(Fault::io, "data: '", array.where, "' has ", rows(array),
                " rows, but '", first.where, "' has ", rows(first),
                "; row i of every array belongs to sample i");
  }
}

}  // namespace

Opened open_arrays(const config::DataConfig& config, Split split) {
  const auto parts = ArrayFinder(config).find();
  if (parts.train.empty()) {
    throw Error(Fault::io, "data: '", config.dir,
                "' has arrays to evaluate on only, by their names; name those to train "
                "on train, for example x_train");
  }
  const Roles roles(config.table, parts.train);
  roles.require_in(parts.train, "to train on");
  const auto& arrays = split == Split::train ? parts.train : parts.eval;
  if (arrays.empty()) {
    throw Error(Fault::io, "data: '", config.dir,
                "' has no array with 'val' or 'test' in its name or its file's to "
                "evaluate on; add some, or hold samples back with data.split=0.1");
  }
  roles.require_in(arrays, "to evaluate on");
  check_rows(arrays, roles.input());
  for (const auto& name : {roles.input(), roles.target()}) {
    check_kinds(parts.train.at(name), arrays.at(name), name == roles.target());
  }
  const auto classes = classes_of(as_target(parts.train.at(roles.target()).tensor));
  check_classes(arrays.at(roles.target()), classes);
  Named tensors;
  for (const auto& [name, array] : arrays) {
    if (roles.is_hidden(name)) continue;
    const auto role = roles.role_of(name);
    tensors.set(role, role == "input"    ? as_input(array)
                      : role == "target" ? as_target(array.tensor)
                                         : as_field(array.tensor));
  }
  TensorOptions options{.num_classes = classes};
  if (tensors.at("input").scalar_type() == torch::kUInt8) {
    options.scaling = {.scale = 1 / 255.0F};  // bytes are seen as 0 ... 1
  }
  return thinned(from_tensors(tensors, options), sample_limit(config, split));
}

}  // namespace lockstep::data
