#include "lockstep/profile/trace.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/data/stage.h"

namespace lockstep::profile {
namespace {

torch::Tensor number(double value) {
  return torch::full({1}, value, torch::kFloat64);
}

}  // namespace

Trace::Trace(run::TraceRequest request, const Subject& subject)
    : request_(std::move(request)),
      model_(subject.model),
      spec_(subject.dataset.spec()),
      world_(subject.world),
      strategy_(subject.strategy) {
  std::error_code error;
  std::filesystem::create_directories(request_.directory, error);
  if (error) files::fail("make directory", request_.directory, error.value());
  add_parameters();
  if (world_.rank() == 0) {
    checkpoint::write_safetensors(request_.directory / run::step_file(0),
                                  std::move(tensors_));
  }
  write_hash();
  inject();
}

void Trace::exchanged() {
  tensors_.clear();
  // A tied parameter stands there under each of its names.
  const auto named = model_.named_parameters();
  strategy_.visit_gradients([&](const auto& parameter, const torch::Tensor& gradient) {
    for (const auto& item : named) {
      if (!item.value().is_same(parameter.tensor)) continue;
      add(::lockstep::str(run::kTraceGradient, item.key()), gradient);
    }
  });
}

void Trace::updated(const data::Batch& batch, double lr, const task::Tally& tally) {
  step_ += 1;
  const auto means =
      world_.size() == 1 ? tally.means() : tally.means(world_.cpu());  // collective
  add_parameters();
  if (world_.rank() == 0) {
    tensors_.emplace_back("loss", number(means.loss));
    tensors_.emplace_back("lr", number(lr));
    checkpoint::write_safetensors(request_.directory / run::step_file(step_),
                                  std::move(tensors_));
  }
  if (request_.batches) write_batch(batch);
  write_hash();
}

// A hook of the parameter runs before its gradient is accumulated, and so before the
// hooks that exchange gradients.
void Trace::inject() const {
  const auto& injection = request_.injection;
  if (!injection || injection->rank != world_.rank()) return;
  std::vector<std::string> names;
  for (const auto& item : model_.named_parameters()) {
    if (!item.value().requires_grad()) continue;
    names.push_back(item.key());
    if (!injection->parameter.empty() && item.key() != injection->parameter) continue;
    item.value().register_hook(
        [scale = injection->scale](const torch::Tensor& grad) { return grad * scale; });
    log::warning("train", fmt::format("the gradient of {} is scaled by {} (--inject)",
                                      item.key(), injection->scale));
    return;
  }
  throw Error(Fault::config, "--inject: the model has no trainable parameter '",
              injection->parameter, "'; it has ", text::join(names, ", "));
}

// Only rank 0 has them; the copies are needed, since an update is in place.
void Trace::add(const std::string& name, const torch::Tensor& tensor) {
  if (world_.rank() != 0 || !tensor.defined()) return;
  tensors_.emplace_back(name, tensor.detach().to(torch::kCPU, /*non_blocking=*/false,
                                                 /*copy=*/true));
}

void Trace::add_parameters() {
  hash_ = hash_of("");
  for (const auto& item : model_.named_parameters()) {
    const auto whole = strategy_.full_parameter(item.value());
    add(::lockstep::str(run::kTraceParameter, item.key()), whole);
    const auto host = whole.cpu().contiguous();
    hash_ = hash_of({static_cast<const char*>(host.const_data_ptr()), host.nbytes()},
                    hash_);
  }
}

void Trace::write_batch(const data::Batch& batch) const {
  // A feed has put them onto the device, those that somebody looks at.
  std::vector<std::pair<std::string, torch::Tensor>> tensors;
  if (batch.inputs.defined()) {
    auto inputs = batch.inputs.cpu();
    if (inputs.scalar_type() != torch::kInt64) {
      auto seen = torch::empty(inputs.sizes(), torch::kFloat32);
      if (batch.size > 0) data::normalize_into(seen, inputs, spec_.tensors()[0]);
      inputs = seen;
    }
    tensors.emplace_back("inputs", inputs);
  }
  if (batch.targets.defined()) tensors.emplace_back("targets", batch.targets.cpu());
  checkpoint::write_safetensors(
      request_.directory / run::batch_file(step_, world_.rank()), tensors);
}

void Trace::write_hash() const {
  files::LineWriter file(request_.directory / run::hash_file(world_.rank()));
  file.write(fmt::format(R"({{"step":{},"hash":"{:016x}"}})", step_, hash_));
}

}  // namespace lockstep::profile
