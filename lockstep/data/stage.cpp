#include "lockstep/data/stage.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/kernels/normalize.h"

namespace lockstep::data {
namespace {

std::vector<std::int64_t> with_batch(std::int64_t batch,
                                     const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> sizes{batch};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  return sizes;
}

bool is_number(const FieldSpec& spec) {
  return spec.dtype == torch::kUInt8 || torch::isFloatingType(spec.dtype);
}

}  // namespace

void normalize_into(torch::Tensor& out, const torch::Tensor& in,
                    const FieldSpec& spec) {
  if (out.is_meta()) return;                           // it has no values
  c10::SmallVector<kernels::ScaleShift, 16> channels;  // on the stack
  for (const auto& c : spec.channels) channels.push_back({c.scale, c.shift});
  if (channels.empty()) channels.push_back({spec.scaling.scale, spec.scaling.shift});
  // What lies before the channels, the frames of a clip, is samples to the kernel.
  const bool leads = channels.size() > 1 && spec.axis > 0;
  if (in.scalar_type() == torch::kUInt8) {
    auto to = leads ? out.flatten(0, spec.axis) : out;
    return kernels::normalize(to, leads ? in.flatten(0, spec.axis) : in, channels);
  }
  out.copy_(in);
  for (std::size_t c = 0; c < channels.size(); ++c) {
    auto part = channels.size() == 1
                    ? out
                    : out.select(1 + spec.axis, static_cast<std::int64_t>(c));
    if (channels[c].scale != 1) part.mul_(channels[c].scale);
    if (channels[c].shift != 0) part.add_(channels[c].shift);
  }
}

FieldStage::FieldStage(FieldSpec spec, torch::MemoryFormat format,
                       const torch::Device& device)
    : spec_(std::move(spec)), format_(format), device_(device) {
  // A model's one input is always float32; others are what they were declared as, but
  // where somebody asked for more.
  converts_ = is_number(spec_) && (spec_.name == "input" || spec_.is_scaled());
}

void FieldStage::reserve(std::int64_t batch) {
  if (!converts_ || spec_.varies) return;
  if (seen_.defined() && batch <= seen_.size(0)) return;
  seen_.reset();  // before there are two
  planes_.reset();
  const auto shape = with_batch(batch, spec_.shape);
  const auto options = torch::dtype(torch::kFloat32).device(device_);
  const bool channels_last =
      format_ == torch::MemoryFormat::ChannelsLast && spec_.shape.size() == 3;
  seen_ = torch::empty(
      shape, channels_last ? options.memory_format(torch::MemoryFormat::ChannelsLast)
                           : options);
  // With one channel both layouts have the same order in memory: no second buffer.
  if (channels_last && spec_.shape[0] > 1) planes_ = torch::empty(shape, options);
}

torch::Tensor FieldStage::stage(const torch::Tensor& stored) {
  if (!converts_) return stored.to(device_);
  const auto count = stored.size(0);
  if (spec_.varies) {
    auto seen =
        torch::empty(stored.sizes(), torch::dtype(torch::kFloat32).device(device_));
    normalize_into(seen, stored.to(device_), spec_);
    return seen;
  }
  LOCKSTEP_CHECK(count <= seen_.size(0), count, " > ", seen_.size(0));
  auto ready = seen_.narrow(0, 0, count);
  auto target = planes_.defined() ? planes_.narrow(0, 0, count) : ready;
  normalize_into(target, stored.to(device_), spec_);
  if (planes_.defined()) ready.copy_(target);
  return ready;
}

BatchStage::BatchStage(const Options& options) : device_(options.device) {
  const auto specs = options.spec.tensors();
  std::vector<std::string> names;
  for (const auto& spec : specs) {
    names.push_back(spec.name);
    if (spec.varies) names.push_back(spec.name + "_mask");
  }
  for (const auto& name : options.wanted) {
    const auto found = std::find_if(specs.begin(), specs.end(), [&](const auto& spec) {
      return spec.name == name;
    });
    if (found != specs.end()) {
      const bool input = name == "input";
      fields_.emplace_back(
          *found, input ? options.format : torch::MemoryFormat::Contiguous, device_);
    } else if (std::find(names.begin(), names.end(), name) != names.end()) {
      masks_.push_back(name);
    } else {
      throw Error(Fault::config, "data: the model or the task wants '", name,
                  "', but a sample has ", text::join(names, ", "),
                  text::did_you_mean(name, names),
                  "; add it to the data set, or name another one");
    }
  }
}

void BatchStage::reserve(std::int64_t batch) {
  for (auto& field : fields_) field.reserve(batch);
}

const Named& BatchStage::stage(const Batch& batch, std::int64_t first,
                               std::int64_t count) {
  for (auto& field : fields_) {
    staged_.set(field.name(),
                field.stage(batch.at(field.name()).narrow(0, first, count)));
  }
  for (const auto& name : masks_) {
    staged_.set(name, batch.at(name).narrow(0, first, count).to(device_));
  }
  return staged_;
}

std::vector<std::string> wanted_by(const std::vector<std::string>& model,
                                   const std::vector<std::string>& task) {
  auto names = model;
  for (const auto& name : task) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(name);
    }
  }
  return names;
}

Batch made_up_batch(const SampleSpec& spec, std::int64_t size,
                    const torch::Device& device) {
  Batch batch{.global_size = size, .size = size, .largest_size = size};
  for (const auto& tensor : spec.tensors()) {
    const auto options = torch::dtype(tensor.dtype).device(device);
    auto zeros = torch::zeros(with_batch(size, tensor.shape), options);
    if (tensor.varies) {
      batch.fields.push_back(
          {tensor.name + "_mask",
           torch::ones({size, tensor.shape[0]}, options.dtype(torch::kBool))});
    }
    if (tensor.name == "input") {
      batch.inputs = std::move(zeros);
    } else if (tensor.name == "target") {
      batch.targets = std::move(zeros);
    } else {
      batch.fields.push_back({tensor.name, std::move(zeros)});
    }
  }
  return batch;
}

}  // namespace lockstep::data
