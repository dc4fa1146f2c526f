// A model that PyTorch has written with torch.jit.save: its parameters are trained like
// those of any other.
#include <algorithm>
#include <filesystem>
#include <map>

#include <c10/core/ScalarType.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/runtime/operator.h>
#include <torch/csrc/jit/serialization/import.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/models/detail/script_buffers.h"
#include "lockstep/models/model.h"
#include "lockstep/models/out_of_memory.h"
#include "lockstep/models/script.h"

namespace lockstep::models {
namespace {

using torch::jit::IValue;

std::string text_of(const std::exception& error) {
  const auto* own = dynamic_cast<const c10::Error*>(&error);
  return own == nullptr ? error.what() : own->what_without_backtrace();
}

std::string first_line(const std::string& text) {
  return text::split(text::trim(text), '\n').front();
}

// Returns one line of an error of the interpreter: the one behind its traceback, which
// of a traced file ends with names of Python's files and no mark.
std::string gist_of(const std::string& text) {
  const auto lines = text::split(text, '\n');
  std::size_t from = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].find("<--- HERE") != std::string::npos) from = i + 1;
    if (lines[i].starts_with("RuntimeError: ")) from = i;
  }
  std::string gist;
  for (auto i = from; i < lines.size() && gist.empty(); ++i) {
    const bool is_code = !lines[i].empty() && lines[i][0] == ' ';
    if (!is_code) gist = text::trim(lines[i]);
  }
  // Every error of an operator has the first prefix, Python's own classes the second.
  for (const std::string_view prefix : {"RuntimeError: ", "builtins."}) {
    if (gist.starts_with(prefix)) gist.erase(0, prefix.size());
  }
  return gist;
}

// Returns "input [12, 1, 9, 9] float32, mask [12] bool".
std::string shown(const Named& tensors) {
  std::vector<std::string> parts;
  for (const auto& [name, tensor] : tensors) {
    parts.push_back(lockstep::str(name, " ", tensor.sizes(), " ",
                                  c10::getDtypeNames(tensor.scalar_type()).first));
  }
  return text::join(parts, ", ");
}

// The GPU's errors are not the script's, and from some of them a run recovers.
bool is_of_the_device(const std::exception& error) {
  return is_out_of_memory(error) ||
         std::string_view(error.what()).find("CUDA error") != std::string_view::npos;
}

// A module of ours for each one of the script, so that names are PyTorch's; it has the
// name of its type in the script.
class Level : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;
};

class TorchScript : public Model {
 public:
  TorchScript(torch::jit::Module module, const config::ModelConfig& config)
      : module_(std::move(module)),
        file_(config.file),
        inputs_(config.inputs),
        outputs_(config.outputs),
        buffers_(module_) {
    check_inputs();
    for (const auto& item : module_.named_modules()) {
      const auto type = item.value.type()->name();
      types_[item.name] = type ? type->name() : "Script";
    }
    for (const auto& item : module_.named_parameters()) {
      auto [owner, name] = place_of(item.name);
      owner.register_parameter(name, item.value, item.value.requires_grad());
    }
    for (const auto& item : module_.named_buffers()) {
      auto [owner, name] = place_of(item.name);
      owner.register_buffer(name, item.value);
    }
  }

  std::vector<std::string> inputs() const override { return inputs_; }
  const torch::jit::Module& script() const noexcept { return module_; }

  void train(bool on) override {
    Model::train(on);
    module_.train(on);
  }

  Named forward_named(const Named& inputs) override {
    Named taken;
    for (const auto& name : inputs_) taken.set(name, inputs.at(name));
    const auto result = run(taken);
    return result.isGenericDict() ? from_dictionary(result)
                                  : named_in_order(tensors_in(result));
  }

 private:
  // Returns the module for a module of the script, "" being this one.
  torch::nn::Module& level_at(const std::string& path) {
    if (path.empty()) return *this;
    auto& level = levels_[path];
    if (!level) {
      auto [owner, name] = place_of(path);
      level = owner.register_module(name, std::make_shared<Level>(types_[path]));
    }
    return *level;
  }

  struct MemberPath {
    torch::nn::Module& owner;
    std::string name;
  };
  MemberPath place_of(const std::string& dotted) {
    const auto dot = dotted.rfind('.');
    if (dot == std::string::npos) return {*this, dotted};
    return {level_at(dotted.substr(0, dot)), dotted.substr(dot + 1)};
  }

  // Checks that forward takes as many tensors as there are names.
  void check_inputs() const {
    const auto method = module_.find_method("forward");
    if (!method) {
      throw Error(Fault::config, "model.file: the script in '", file_,
                  "' has no forward, which is what is trained; give it one");
    }
    std::vector<std::string> names;
    std::size_t needed = 0;
    for (const auto& argument : method->function().getSchema().arguments()) {
      names.push_back(argument.name());
      needed += argument.default_value() ? 0 : 1;
    }
    names.erase(names.begin());  // self
    if (inputs_.size() + 1 >= needed && inputs_.size() <= names.size()) return;
    throw Error(Fault::config, "model.inputs: forward of '", file_, "' takes (",
                text::join(names, ", "), "), but the names are [",
                text::join(inputs_, ", "), "]; name a tensor of the data for each");
  }

  IValue run(const Named& inputs) {
    std::vector<IValue> arguments;
    for (const auto& one : inputs) arguments.emplace_back(one.tensor);
    buffers_.lend();
    try {
      auto result = module_.forward(std::move(arguments));
      buffers_.take_back(file_);
      return result;
    } catch (const Error&) {
      buffers_.withdraw();
      throw;
    } catch (const std::exception& error) {
      buffers_.withdraw();
      if (is_of_the_device(error)) throw;
      throw Error(Fault::config, "model.file: '", file_,
                  "' failed in forward: ", gist_of(text_of(error)), "; it got ",
                  shown(inputs),
                  "; make model.inputs and the data match what it takes");
    }
  }

  [[noreturn]] void refuse(const IValue& result) const {
    throw Error(Fault::config, "model.outputs: '", file_, "' returns ",
                result.type()->annotation_str(),
                "; a model returns a tensor, a tuple or a list of tensors, or a "
                "dictionary of them by name");
  }

  Named from_dictionary(const IValue& result) const {
    Named named;
    for (const auto& item : result.toGenericDict()) {
      if (!item.key().isString() || !item.value().isTensor()) refuse(result);
      named.set(item.key().toStringRef(), item.value().toTensor());
    }
    return named;
  }

  std::vector<torch::Tensor> tensors_in(const IValue& result) const {
    if (result.isTensor()) return {result.toTensor()};
    if (result.isTensorList()) return result.toTensorVector();
    if (!result.isTuple()) refuse(result);
    std::vector<torch::Tensor> tensors;
    for (const auto& one : result.toTupleRef().elements()) {
      if (!one.isTensor()) refuse(result);
      tensors.push_back(one.toTensor());
    }
    return tensors;
  }

  Named named_in_order(const std::vector<torch::Tensor>& tensors) const {
    if (tensors.size() != outputs_.size()) {
      throw Error(Fault::config, "model.outputs: '", file_, "' returns ",
                  tensors.size(), tensors.size() == 1 ? " tensor" : " tensors",
                  ", but the names are [", text::join(outputs_, ", "),
                  "]; write one for each");
    }
    Named named;
    for (std::size_t i = 0; i < tensors.size(); ++i) named.set(outputs_[i], tensors[i]);
    return named;
  }

  torch::jit::Module module_;
  std::string file_;
  std::vector<std::string> inputs_, outputs_;
  ScriptBuffers buffers_;
  // The keys are the names that modules have in the script.
  std::map<std::string, std::string> types_;
  std::map<std::string, std::shared_ptr<Level>> levels_;
};

// A model may come from somebody whom the files of this machine do not concern, and its
// program runs as soon as it is loaded (__setstate__): operators that open a file by
// its name (aten::save, aten::from_file) are none of this process.
void drop_operators_of_files() {
  static const bool is_done = [] {
    for (const auto& op : torch::jit::getAllOperators()) {
      const auto& arguments = op->schema().arguments();
      const bool opens_file =
          std::any_of(arguments.begin(), arguments.end(),
                      [](const auto& one) { return one.name() == "filename"; });
      if (opens_file) torch::jit::deregisterOperator(op->schema());
    }
    return true;
  }();
  static_cast<void>(is_done);
}

torch::jit::Module load(const std::string& file) {
  if (file.empty()) {
    throw Error(Fault::config,
                "model.file: a model of torchscript is in a file; name the one that "
                "torch.jit.save has written");
  }
  if (!std::filesystem::is_regular_file(file)) {
    throw Error(Fault::io, "model.file: there is no file '", file, "'");
  }
  drop_operators_of_files();
  // Values come from the file, also where a model is built without memory.
  const c10::impl::ExcludeDispatchKeyGuard with_memory(c10::DispatchKey::DeferredInit);
  try {
    return torch::jit::load(file, torch::kCPU);
  } catch (const std::exception& error) {
    if (is_out_of_memory(error)) throw;
    const auto text = text_of(error);
    constexpr std::string_view kRemedy =
        "; write it with torch.jit.save(torch.jit.script(model), path)";
    // The reader of archives has a paragraph for each way in which a file is none.
    if (text.find("PytorchStreamReader") != std::string::npos) {
      throw Error(Fault::io, "model.file: '", file, "' is not a TorchScript file",
                  kRemedy);
    }
    for (const auto* name : {"aten::from_file", "aten::save"}) {
      if (text.find(name) == std::string::npos) continue;
      throw Error(Fault::config, "model.file: the program in '", file, "' uses ", name,
                  ", which opens files by name; keep what it needs in buffers of the "
                  "model");
    }
    throw Error(Fault::io, "model.file: '", file, "' is not a TorchScript file that ",
                "this LibTorch can load: ", first_line(text), kRemedy);
  }
}

}  // namespace

const torch::jit::Module* script_of(const Model& model) {
  const auto* own = dynamic_cast<const TorchScript*>(&model);
  return own == nullptr ? nullptr : &own->script();
}

std::shared_ptr<Model> make_torchscript(const config::ModelConfig& config,
                                        const Shape&) {
  // Runs are interpreted as they are written: code optimized after some of them would
  // round differently, and a resumed run would not come to the same bits.
  torch::jit::setGraphExecutorOptimize(false);
  return std::make_shared<TorchScript>(load(config.file), config);
}

}  // namespace lockstep::models
