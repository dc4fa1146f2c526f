#include "lockstep/parallel/full_tensors.h"

#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/parallel/detail/spans.h"

namespace lockstep::parallel {
namespace {

// The piece of the flat buffers that has a parameter, whole or as shards of the ranks.
struct Home {
  std::size_t index = 0;    // in owned()
  std::int64_t offset = 0;  // of the parameter, in the whole piece
  std::int64_t size = 0;    // of the whole piece
  bool is_sharded = false;
};

Home find_home(const Engine& engine, std::size_t parameter) {
  std::size_t first = 0;  // in owned(), of the group
  for (std::size_t g = 0; g < engine.layout().size(); ++g) {
    const auto& group = engine.layout()[g];
    const bool is_sharded = engine.shards_update();
    for (std::size_t b = 0; b < group.buckets.size(); ++b) {
      const auto& bucket = group.buckets[b];
      for (auto s = bucket.first_slot; s < bucket.last_slot; ++s) {
        const auto& slot = group.slots[s];
        if (slot.parameter != parameter) continue;
        if (!is_sharded) return {first, slot.offset, group.numel, false};
        return {first + b, slot.offset - bucket.begin, bucket.end - bucket.begin, true};
      }
    }
    first += is_sharded ? group.buckets.size() : 1;
  }
  throw Error(Fault::internal, "parallel: parameter ", parameter, " is in no bucket");
}

void check_shape(const Parameter& parameter, const torch::Tensor& value) {
  if (value.sizes() == parameter.tensor.sizes()) return;
  throw Error(Fault::config, "parallel: a value for '", parameter.name, "' of shape ",
              value.sizes(), ", but it has ", parameter.tensor.sizes());
}

}  // namespace

std::size_t find_parameter(const Engine& engine, std::string_view name) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < engine.parameters().size(); ++i) {
    if (engine.parameters()[i].name == name) return i;
    names.push_back(engine.parameters()[i].name);
  }
  throw Error(Fault::config, "parallel: no trained parameter is called '", name, "'",
              text::did_you_mean(name, names));
}

torch::Tensor full_tensor(Engine& engine, std::size_t parameter,
                          const PieceTensor& piece) {
  const torch::NoGradGuard no_grad;
  const auto home = find_home(engine, parameter);
  const auto& like = engine.parameters()[parameter].tensor;
  auto whole = piece(home.index);
  if (home.is_sharded) {
    const auto own = whole.contiguous();
    whole = torch::empty({home.size}, own.options());
    engine.sharers().all_gather(whole, own).wait();
  }
  return whole
      .as_strided(like.sizes(), like.strides(), whole.storage_offset() + home.offset)
      .clone();
}

void set_full_tensor(Engine& engine, const NewTensor& whole, const PieceTensor& piece) {
  const torch::NoGradGuard no_grad;
  const auto& parameter = engine.parameters()[whole.parameter];
  check_shape(parameter, whole.value);
  const auto home = find_home(engine, whole.parameter);
  const auto& like = parameter.tensor;
  auto own = piece(home.index);
  // In the order in which the parameter lies in memory.
  const auto flat = torch::empty({like.numel()}, own.options());
  flat.as_strided(like.sizes(), like.strides()).copy_(whole.value);
  const auto begin = home.is_sharded ? engine.sharers().rank() * own.numel() : 0;
  const auto part =
      detail::within({0, begin, own.numel()}, home.offset, home.offset + like.numel());
  if (part.begin >= part.end) return;
  own.narrow(0, part.begin, part.end - part.begin)
      .copy_(flat.narrow(0, begin + part.begin - home.offset, part.end - part.begin));
}

torch::Tensor full_parameter(Engine& engine, std::string_view name) {
  const auto& parameter = engine.parameters()[find_parameter(engine, name)];
  return engine.full_parameter(parameter.tensor).clone();
}

void set_full_parameter(Engine& engine, std::string_view name,
                        const torch::Tensor& value) {
  const auto& parameter = engine.parameters()[find_parameter(engine, name)];
  check_shape(parameter, value);
  engine.set_parameter(parameter.tensor, value);
}

torch::Tensor full_gradient(Engine& engine, std::string_view name) {
  return full_tensor(engine, find_parameter(engine, name),
                     [&](std::size_t i) { return engine.owned_gradients(i); });
}

void set_full_gradient(Engine& engine, std::string_view name,
                       const torch::Tensor& value) {
  set_full_tensor(engine, {find_parameter(engine, name), value},
                  [&](std::size_t i) { return engine.owned_gradients(i); });
}

}  // namespace lockstep::parallel
