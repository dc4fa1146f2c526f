#include "lockstep/data/dataset.h"

#include "lockstep/base/error.h"
#include "lockstep/data/detail/numbers.h"
#include "lockstep/data/detail/sample.h"

namespace lockstep::data {
namespace {

std::int64_t product(const std::vector<std::int64_t>& shape) noexcept {
  std::int64_t count = 1;
  for (const auto size : shape) count *= size;
  return count;
}

std::int64_t bytes_of(torch::Dtype dtype) noexcept {
  return static_cast<std::int64_t>(torch::elementSize(dtype));
}

}  // namespace

std::int64_t FieldSpec::num_elements() const noexcept {
  return product(shape);
}

std::int64_t FieldSpec::num_bytes() const noexcept {
  return num_elements() * bytes_of(dtype);
}

bool FieldSpec::is_scaled() const noexcept {
  return !channels.empty() || scaling != Affine{};
}

std::vector<FieldSpec> SampleSpec::tensors() const {
  std::vector<FieldSpec> all{
      {.name = "input",
       .shape = shape,
       .dtype = dtype,
       .scaling = {scale, shift},
       .channels = channels,
       .axis = axis,
       .varies = varies},
      {.name = "target",
       .shape = target_shape,
       .dtype = target_dtype,
       .num_classes = num_classes,
       .varies = target_varies,
       .padding = static_cast<double>(ignore_index.value_or(0))}};
  all.insert(all.end(), fields.begin(), fields.end());
  return all;
}

std::int64_t SampleSpec::num_elements() const noexcept {
  return product(shape);
}

std::int64_t SampleSpec::num_bytes() const noexcept {
  return num_elements() * bytes_of(dtype);
}

std::int64_t SampleSpec::num_targets() const noexcept {
  return product(target_shape);
}

bool SampleSpec::is_tokens() const noexcept {
  return dtype != torch::kUInt8 && !torch::isFloatingType(dtype);
}

bool SampleSpec::is_image() const noexcept {
  return shape.size() == 3 && (dtype == torch::kUInt8 || dtype == torch::kFloat32);
}

std::int64_t Dataset::read(std::int64_t, std::span<std::byte>) const {
  throw Error(Fault::internal,
              "data: a data set implements neither read() nor read_sample()");
}

void Dataset::read_sample(const Visit& visit, const SampleBuffer& room) const {
  LOCKSTEP_CHECK(room.target.size() == 1 && room.fields.empty(),
                 "a data set with more than one target, or one that is no class, "
                 "implements read_sample()");
  room.target[0] = read(visit.index, room.input);
}

std::int64_t Dataset::class_of(std::int64_t index) const {
  if (!detail::is_whole(spec().target_dtype) || spec().num_targets() == 0) {
    throw Error(Fault::config, "data: targets of ", c10::toString(spec().target_dtype),
                " of shape ", c10::IntArrayRef(spec().target_shape),
                " are not classes; give samples whole numbers as targets");
  }
  detail::Sample sample(*this);
  sample.read(index);
  return sample.first_class();
}

std::int64_t Dataset::length_of(std::int64_t index) const {
  if (!spec().varies) return spec().shape[0];
  detail::Sample sample(*this);
  sample.read(index);
  return sample.length_of_input();
}

}  // namespace lockstep::data
