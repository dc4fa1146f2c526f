#include "lockstep/models/script.h"

#include <cctype>
#include <map>

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/serialization/import.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/models/out_of_memory.h"

namespace lockstep::models {
namespace {

using torch::jit::IValue;

constexpr double kRelative = 1e-4;
constexpr double kAbsolute = 1e-5;

// Returns "Gpt" of "lockstep::models::(anonymous namespace)::Gpt".
std::string class_of(const torch::nn::Module& module) {
  auto name = module.name();
  const auto colon = name.rfind(':');
  if (colon != std::string::npos) name.erase(0, colon + 1);
  if (name.size() > 4 && name.ends_with("Impl")) name.resize(name.size() - 4);
  for (const char c : name) {
    const bool is_word = c == '_' || (std::isalnum(static_cast<unsigned char>(c)) != 0);
    if (!is_word) return "Module";
  }
  return name.empty() ? "Module" : name;
}

// Makes modules of a program that hold the tensors of ours, under the same names. A
// module that has two names stays one.
class Mirror {
 public:
  torch::jit::Module of(const torch::nn::Module& module) {
    if (const auto known = made_.find(&module); known != made_.end()) {
      return known->second;
    }
    torch::jit::Module mirror(
        c10::QualifiedName("__torch__.lockstep." + class_of(module)), unit_,
        /*shouldMangle=*/true);
    for (const auto& item : module.named_parameters(/*recurse=*/false)) {
      mirror.register_parameter(item.key(), item.value(), /*is_buffer=*/false);
    }
    for (const auto& item : module.named_buffers(/*recurse=*/false)) {
      mirror.register_buffer(item.key(), item.value());
    }
    for (const auto& item : module.named_children()) {
      mirror.register_module(item.key(), of(*item.value()));
    }
    mirror.register_attribute("training", c10::BoolType::get(), false);
    made_.emplace(&module, mirror);
    return mirror;
  }

 private:
  std::shared_ptr<torch::jit::CompilationUnit> unit_ =
      std::make_shared<torch::jit::CompilationUnit>();
  std::map<const torch::nn::Module*, torch::jit::Module> made_;
};

// The model evaluates as long as this lives.
class Evaluation {
 public:
  explicit Evaluation(Model& model) : model_(model), trained_(model.is_training()) {
    model_.eval();
  }
  ~Evaluation() { model_.train(trained_); }
  Evaluation(const Evaluation&) = delete;
  Evaluation& operator=(const Evaluation&) = delete;

 private:
  Model& model_;
  bool trained_;
};

std::vector<IValue> arguments_of(const Model& model, const Named& inputs) {
  std::vector<IValue> arguments;
  for (const auto& name : model.inputs()) arguments.emplace_back(inputs.at(name));
  return arguments;
}

IValue value_of(const Named& outputs) {
  if (outputs.size() == 1) return outputs.begin()->tensor;
  c10::Dict<std::string, torch::Tensor> named;
  for (const auto& [name, tensor] : outputs) named.insert(name, tensor);
  return named;
}

torch::jit::Module traced(Model& model, const Named& samples) {
  auto program = Mirror().of(model);
  const auto names = model.inputs();
  const auto pass = [&](const torch::jit::Stack& arguments) {
    Named inputs;
    for (std::size_t i = 0; i < names.size(); ++i) {
      inputs.set(names[i], arguments[i].toTensor());
    }
    return torch::jit::Stack{value_of(model.forward_named(inputs))};
  };
  const auto [state, outputs] = torch::jit::tracer::trace(
      arguments_of(model, samples), pass, [](const torch::Tensor&) { return ""; },
      /*strict=*/false, /*force_outplace=*/false, &program, names);
  torch::jit::EliminateDeadCode(state->graph);
  const c10::QualifiedName name(*program.type()->name(), "forward");
  program.type()->addMethod(
      program._ivalue()->compilation_unit()->create_function(name, state->graph));
  return program;
}

// The tensors of samples [0, size) when they are laid end to end again and again.
Named of_size(const Named& samples, std::int64_t size) {
  Named cut;
  for (const auto& [name, tensor] : samples) {
    const auto all = torch::cat({tensor, tensor});
    cut.set(name, all.narrow(0, 0, size).contiguous());
  }
  return cut;
}

bool is_close(const torch::Tensor& a, const torch::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         torch::allclose(a, b, kRelative, kAbsolute, /*equal_nan=*/true);
}

bool is_close(const IValue& value, const Named& outputs) {
  if (outputs.size() == 1) {
    return value.isTensor() && is_close(value.toTensor(), outputs.begin()->tensor);
  }
  const auto named = value.toGenericDict();
  for (const auto& [name, tensor] : outputs) {
    if (!named.contains(name)) return false;
    if (!is_close(named.at(name).toTensor(), tensor)) return false;
  }
  return named.size() == outputs.size();
}

[[noreturn]] void refuse(const std::string& reason) {
  throw Error(Fault::config,
              "torchscript: this model cannot be written as a program: ", reason,
              "; --format safetensors and --format pt write its weights");
}

std::string gist_of(const std::exception& error) {
  const auto* own = dynamic_cast<const c10::Error*>(&error);
  const std::string text =
      own == nullptr ? error.what() : own->what_without_backtrace();
  return text::split(text::trim(text), '\n').front();
}

void check(Model& model, torch::jit::Module& program, const Named& inputs) {
  const auto batch = inputs.begin()->tensor.size(0);
  const auto expected = model.forward_named(inputs);
  IValue got;
  try {
    got = program.forward(arguments_of(model, inputs));
  } catch (const std::exception& error) {
    if (is_out_of_memory(error)) throw;
    refuse(str("with ", batch, " samples it fails (", gist_of(error),
               "), since forward() uses sizes of its batch as plain numbers"));
  }
  if (is_close(got, expected)) return;
  refuse(str("with ", batch,
             " samples it computes something else than the model, since forward() "
             "depends on more than its inputs and weights"));
}

}  // namespace

void write_script(Model& model, const Named& samples, const ScriptFile& file) {
  const torch::NoGradGuard no_grad;
  const Evaluation evaluation(model);
  const torch::jit::ExtraFilesMap notes{{"lockstep.json", file.notes}};
  if (const auto* own = script_of(model)) {
    own->save(file.path.string(), notes);
    return;
  }
  auto program = traced(model, samples);
  program.save(file.path.string(), notes);
  auto loaded = torch::jit::load(file.path.string(), torch::kCPU);
  const auto size = samples.begin()->tensor.size(0);
  for (const auto batch : {size, std::int64_t{1}, 2 * size}) {
    check(model, loaded, of_size(samples, batch));
  }
}

}  // namespace lockstep::models
