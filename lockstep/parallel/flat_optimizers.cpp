#include "lockstep/parallel/detail/flat_optimizers.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/optim/groups.h"
#include "lockstep/parallel/detail/spans.h"
#include "lockstep/parallel/update.h"

namespace lockstep::parallel::detail {
namespace {

// The hyperparameters of an optimizer's step lie one after the other in memory.
constexpr std::size_t kHyperNumbers = sizeof(kernels::Hyper) / sizeof(double);

}  // namespace

optim::NamedTensors FlatOptimizers::Piece::state() const {
  auto all = optimizer->state();
  std::erase_if(all, [](const auto& item) { return item.first == optim::kBehind; });
  if (!average) return all;
  for (auto& [name, tensor] : average->state()) all.emplace_back("ema." + name, tensor);
  return all;
}

optim::NamedTensors FlatOptimizers::piece_state(std::size_t index) const {
  auto all = pieces_[index].optimizer->state();
  std::erase_if(all, [](const auto& item) { return item.first == optim::kBehind; });
  return all;
}

torch::Tensor FlatOptimizers::Piece::steps() const {
  for (const auto& [name, tensor] : optimizer->state()) {
    if (name == "step") return tensor;
  }
  return {};
}

FlatOptimizers::FlatOptimizers(const Knobs& knobs, Engine& engine,
                               comm::Communicator& data)
    : knobs_(knobs),
      engine_(engine),
      data_(data),
      layout_(engine.layout()),
      pieces_(make()),
      clip_(knobs.optim.clip_norm, data.device()),
      behind_(engine.parameters().size()) {}

// Parameters with the same options are one range.
std::vector<optim::OptionRange> FlatOptimizers::option_ranges(
    const Shard& shard) const {
  std::vector<optim::ParameterShape> shapes;
  for (const auto& parameter : engine_.parameters()) {
    shapes.push_back({parameter.name, static_cast<int>(parameter.tensor.dim())});
  }
  const auto options = optim::parameter_options(knobs_.optim, shapes);
  const auto& group = engine_.layout()[shard.group];
  std::vector<optim::OptionRange> ranges;
  for (std::size_t i = 0; i < group.slots.size(); ++i) {
    const auto span = within(shard, group.slots[i].offset, end_of(group, i));
    if (span.begin == span.end) continue;
    const auto& own = options[group.slots[i].parameter];
    const bool joins = !ranges.empty() && ranges.back().lr_scale == own.lr_scale &&
                       ranges.back().weight_decay == own.weight_decay;
    if (joins) {
      ranges.back().end = span.end;
    } else {
      ranges.push_back({span.begin, span.end, own.lr_scale, own.weight_decay});
    }
  }
  return ranges;
}

std::vector<FlatOptimizers::Piece> FlatOptimizers::make() const {
  std::vector<Piece> pieces;
  for (std::size_t index = 0; index < engine_.owned().size(); ++index) {
    const auto& shard = engine_.owned()[index];
    Piece piece{.index = index, .shard = shard};
    const auto values = engine_.owned_values(index);
    piece.optimizer = optim::make_optimizer(knobs_.optim, values, option_ranges(shard));
    if (knobs_.ema.enabled) {
      piece.average.emplace(knobs_.ema, piece.optimizer->weights(values));
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

// Returns the sum over all pieces of all ranks; on the device, float64.
torch::Tensor FlatOptimizers::squared_norm() {
  torch::Tensor sum;
  std::int64_t here = 0, all = 0;
  for (const auto& group : layout_) all += group.numel;
  for (auto& piece : pieces_) {
    const auto gradients = engine_.owned_gradients(piece.index);
    if (!piece.norm) piece.norm.emplace(gradients);
    const auto& own = piece.norm->of(gradients);
    sum = sum.defined() ? sum.add_(own) : own.clone();
    here += piece.shard.size;
  }
  if (here == all) return sum;
  // Over all ranks, not those of a group: all of them get the same bits. Each group
  // adds the whole, so the sum is divided by their number.
  data_.all_reduce(sum).wait();
  const auto groups = engine_.replica().ranks;
  return groups == 1 ? sum : sum.div_(groups);
}

// Tells optimizers that were made anew, or filled from a checkpoint.
void FlatOptimizers::tell_behind(std::vector<Piece>& pieces) const {
  for (auto& piece : pieces) {
    std::vector<optim::Behind> behind;
    const auto& group = engine_.layout()[piece.shard.group];
    for (std::size_t i = 0; i < group.slots.size(); ++i) {
      const auto steps = behind_[group.slots[i].parameter];
      const auto span = within(piece.shard, group.slots[i].offset, end_of(group, i));
      if (steps > 0 && span.begin < span.end) {
        behind.push_back({span.begin, span.end, steps});
      }
    }
    piece.optimizer->set_behind(std::move(behind));
  }
}

void FlatOptimizers::update(Piece& piece, optim::StepArguments arguments) {
  auto values = engine_.owned_values(piece.index);
  arguments.unused = unused_elements(engine_, piece.shard);
  piece.optimizer->step(values, engine_.owned_gradients(piece.index), arguments);
  if (piece.average) piece.average->update(piece.optimizer->weights(values));
}

optim::StepArguments FlatOptimizers::arguments_of(const Update& update) const {
  return {.lr = update.lr,
          .gradient_scale = 1 / update.loss_scale,
          .clip_value = knobs_.optim.clip_value};
}

Updated FlatOptimizers::step(const Update& wanted) {
  const torch::NoGradGuard no_grad;
  engine_.wait_for_values();  // a rank without samples has needed none
  Updated done;
  auto arguments = arguments_of(wanted);
  const bool clips = knobs_.optim.clip_norm > 0;
  if (clips || wanted.wants_norm || wanted.skips_nonfinite) {
    clip_.compute(squared_norm(), arguments.gradient_scale);
    done.norm = clip_.norm();
    if (clips) arguments.factor = clip_.factor();
  }
  // Every rank has the same sums, hence the same norm: they skip together.
  if (wanted.skips_nonfinite && !std::isfinite(done.norm.item<double>())) {
    done.skipped = true;
    return done;
  }
  for (const auto i : engine_.globally_unused()) ++behind_[i];
  // Buckets are in the order of the backward pass: the last is needed first.
  for (std::size_t i = pieces_.size(); i-- > 0;) {
    update(pieces_[i], arguments);
    engine_.updated(i);
  }
  if (!wanted.values_may_travel) engine_.wait_for_values();
  return done;
}

std::int64_t FlatOptimizers::prepare_held() {
  std::int64_t cuts = 0;
  for (auto& piece : pieces_) cuts += piece.optimizer->use_all();
  return cuts;
}

// Returns the scale of the gradients; then of each piece the hyperparameters of its
// optimizer, and by how much its average follows.
std::vector<double> FlatOptimizers::held_numbers(const Update& update,
                                                 int later) const {
  const auto arguments = arguments_of(update);
  std::vector<double> numbers{arguments.gradient_scale};
  for (const auto& piece : pieces_) {
    for (const auto& hyper : piece.optimizer->hypers(arguments, later)) {
      const auto own = std::bit_cast<std::array<double, kHyperNumbers>>(hyper);
      numbers.insert(numbers.end(), own.begin(), own.end());
    }
    if (piece.average) numbers.push_back(piece.average->rest(later));
  }
  return numbers;
}

torch::Tensor FlatOptimizers::launch_held(const torch::Tensor& numbers,
                                          const torch::Tensor& skipped) {
  const torch::NoGradGuard no_grad;
  const bool clips = knobs_.optim.clip_norm > 0;
  const auto* number = numbers.const_data_ptr<double>();
  optim::HeldArguments arguments;
  torch::Tensor norm;
  if (clips || skipped.defined()) {
    clip_.compute(squared_norm(), number);
    norm = clip_.norm();
    if (clips) arguments.factor = clip_.factor().const_data_ptr<double>();
  }
  if (skipped.defined()) {
    skipped.copy_(norm.isfinite().logical_not());
    arguments.skip = skipped.const_data_ptr<double>();
  }
  ++number;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    auto& piece = pieces_[i];
    auto values = engine_.owned_values(i);
    arguments.hypers = reinterpret_cast<const kernels::Hyper*>(number);
    piece.optimizer->launch(values, engine_.owned_gradients(i), arguments);
    number += kHyperNumbers * piece.optimizer->hypers({}, 0).size();
    if (piece.average) {
      auto rest = numbers[number++ - numbers.const_data_ptr<double>()];
      if (skipped.defined()) rest = rest.masked_fill(skipped != 0, 0);
      piece.average->launch(piece.optimizer->weights(values), rest);
    }
    engine_.updated(i);
  }
  engine_.wait_for_values();
  return norm;
}

void FlatOptimizers::count_held() {
  for (auto& piece : pieces_) {
    piece.optimizer->count_step();
    if (piece.average) piece.average->count_step();
  }
}

torch::Tensor FlatOptimizers::norm(const Update& update) {
  const torch::NoGradGuard no_grad;
  clip_.compute(squared_norm(), 1 / update.loss_scale);
  return clip_.norm();
}

void FlatOptimizers::use_average(bool on) {
  const torch::NoGradGuard no_grad;
  engine_.wait_for_values();
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    auto values = engine_.owned_values(i);
    if (on) {
      pieces_[i].average->swap_in(values);
    } else {
      pieces_[i].average->swap_out(values);
    }
    engine_.updated(i);
  }
  engine_.wait_for_values();
}

}  // namespace lockstep::parallel::detail
