#include "lockstep/data/dataset.h"

#include "lockstep/base/error.h"

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

void Dataset::read_sample(const Visit& visit, const Room& room) const {
  LOCKSTEP_CHECK(room.target.size() == 1 && room.fields.empty(),
                 "a data set with more than one target, or one that is no class, "
                 "implements read_sample()");
  room.target[0] = read(visit.index, room.input);
}

namespace {

// A sample in memory of its own.
class Sample {
 public:
  Sample(const Dataset& dataset, std::int64_t index) : spec_(dataset.spec()) {
    for (const auto& tensor : spec_.tensors()) {
      memory_.emplace_back(static_cast<std::size_t>(tensor.num_bytes()));
      spans_.emplace_back(memory_.back());
      lengths_.push_back(tensor.varies ? tensor.shape[0] : 0);
    }
    dataset.read_sample(
        {.index = index, .draw = index},
        {spans_[0], classes(), std::span(spans_).subspan(2), spans_[1], lengths_});
  }

  std::span<std::int64_t> classes() {
    const bool whole = spec_.target_dtype == torch::kInt64;
    return {reinterpret_cast<std::int64_t*>(spans_[1].data()),
            whole ? static_cast<std::size_t>(spec_.num_targets()) : 0};
  }
  std::int64_t length_of_input() const { return lengths_[0]; }

 private:
  const SampleSpec& spec_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::span<std::byte>> spans_;
  std::vector<std::int64_t> lengths_;
};

}  // namespace

std::int64_t Dataset::class_of(std::int64_t index) const {
  LOCKSTEP_CHECK(spec().target_dtype == torch::kInt64, "targets are no classes");
  return Sample(*this, index).classes()[0];
}

std::int64_t Dataset::length_of(std::int64_t index) const {
  return spec().varies ? Sample(*this, index).length_of_input() : spec().shape[0];
}

}  // namespace lockstep::data
