// A model that PyTorch has written with torch.jit.save: its parameters are trained like
// those of any other.
#include <filesystem>
#include <map>

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/models/model.h"

namespace lockstep::models {
namespace {

using torch::jit::IValue;

// A module of ours at each level of a dotted name, so that names are PyTorch's.
class Level : public torch::nn::Module {
 public:
  Level& at(const std::string& name) {
    auto& level = levels_[name];
    if (!level) level = register_module(name, std::make_shared<Level>());
    return *level;
  }

 private:
  std::map<std::string, std::shared_ptr<Level>> levels_;
};

class TorchScript : public Model {
 public:
  TorchScript(torch::jit::Module module, const config::ModelConfig& config)
      : module_(std::move(module)),
        file_(config.file),
        inputs_(config.inputs),
        outputs_(config.outputs) {
    for (const auto& item : module_.named_parameters()) {
      add(item.name, [&](torch::nn::Module& to, const std::string& name) {
        to.register_parameter(name, item.value, item.value.requires_grad());
      });
    }
    for (const auto& item : module_.named_buffers()) {
      add(item.name, [&](torch::nn::Module& to, const std::string& name) {
        to.register_buffer(name, item.value);
      });
    }
  }

  std::vector<std::string> inputs() const override { return inputs_; }

  void train(bool on) override {
    Model::train(on);
    module_.train(on);
  }

  Named forward_named(const Named& inputs) override {
    std::vector<IValue> arguments;
    for (const auto& name : inputs_) arguments.emplace_back(inputs.at(name));
    const auto result = module_.forward(std::move(arguments));
    return result.isGenericDict() ? from_dictionary(result)
                                  : named_in_order(tensors_in(result));
  }

 private:
  template <typename Register>
  void add(const std::string& dotted, const Register& enter) {
    const auto parts = text::split(dotted, '.');
    if (parts.size() == 1) return enter(*this, dotted);
    auto& root = levels_[std::string(parts[0])];
    if (!root) {
      root = register_module(std::string(parts[0]), std::make_shared<Level>());
    }
    Level* level = root.get();
    for (std::size_t i = 1; i + 1 < parts.size(); ++i) {
      level = &level->at(std::string(parts[i]));
    }
    enter(*level, std::string(parts.back()));
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
  std::map<std::string, std::shared_ptr<Level>> levels_;
};

torch::jit::Module load(const std::string& file) {
  if (file.empty()) {
    throw Error(Fault::config,
                "model.file: a model of torchscript is in a file; name the one that "
                "torch.jit.save has written");
  }
  if (!std::filesystem::is_regular_file(file)) {
    throw Error(Fault::io, "model.file: there is no file '", file, "'");
  }
  try {
    return torch::jit::load(file, torch::kCPU);
  } catch (const c10::Error& error) {
    throw Error(Fault::io, "model.file: '", file,
                "' is no TorchScript file: ", error.what_without_backtrace(),
                "; write it with torch.jit.save(torch.jit.script(model), path)");
  }
}

}  // namespace

std::shared_ptr<Model> make_torchscript(const config::ModelConfig& config,
                                        const Shape&) {
  // Runs are interpreted as they are written: what is optimised after some of them
  // would round differently, and a run that is resumed would not come to the same bits.
  torch::jit::setGraphExecutorOptimize(false);
  return std::make_shared<TorchScript>(load(config.file), config);
}

}  // namespace lockstep::models
