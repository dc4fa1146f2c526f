#include "lockstep/train/rank_state.h"

#include <mutex>

#include <ATen/Context.h>

#include "lockstep/base/str.h"

namespace lockstep::train {
namespace {

torch::Tensor state_of(const torch::Device& device) {
  auto generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_state(const torch::Device& device, const torch::Tensor& state) {
  auto generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

}  // namespace

void RankState::refresh(task::Tally& tally, const torch::Device& device) {
  host_draws_ = state_of(torch::kCPU);
  if (!device.is_cpu()) device_draws_ = state_of(device);
  if (holds_) return;
  sums_ = tally.sums();
  count_ = torch::tensor({tally.count()}, torch::kInt64);
}

void RankState::hold_sums(task::Tally& tally) {
  sums_ = tally.sums().clone();
  count_ = torch::tensor({tally.count()}, torch::kInt64);
  holds_ = true;
}

checkpoint::Pieces RankState::pieces() const {
  const auto name = [this](const char* what) { return str("rank.", rank_, ".", what); };
  const auto piece = [&](const char* what, const torch::Tensor& tensor) {
    return checkpoint::whole_piece(name(what), tensor, /*changes_in_forward=*/true);
  };
  checkpoint::Pieces all{piece("rng.cpu", host_draws_), piece("tally", sums_),
                         piece("count", count_)};
  if (device_draws_.defined()) all.push_back(piece("rng.device", device_draws_));
  return all;
}

void RankState::apply(task::Tally& tally, const torch::Device& device) const {
  set_state(torch::kCPU, host_draws_);
  if (device_draws_.defined()) set_state(device, device_draws_);
  tally.count() = count_.item<std::int64_t>();
}

std::map<std::string, double> numbers_of(const NumberTensors& tensors) {
  std::map<std::string, double> numbers;
  for (const auto& [name, tensor] : tensors) numbers[name] = tensor.item<double>();
  return numbers;
}

NumberTensors tensors_of(const std::map<std::string, double>& numbers) {
  NumberTensors tensors;
  for (const auto& [name, value] : numbers) {
    tensors.emplace_back(name, torch::tensor(value, torch::kFloat64));
  }
  return tensors;
}

}  // namespace lockstep::train
