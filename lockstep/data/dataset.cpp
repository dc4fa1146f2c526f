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

std::int64_t FieldSpec::num_bytes() const noexcept {
  return product(shape) * bytes_of(dtype);
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
                 "a data set with more than one target implements read_sample()");
  room.target[0] = read(visit.index, room.input);
}

std::int64_t Dataset::class_of(std::int64_t index) const {
  std::vector<std::byte> input(static_cast<std::size_t>(spec().num_bytes()));
  std::vector<std::int64_t> target(static_cast<std::size_t>(spec().num_targets()));
  std::vector<std::vector<std::byte>> fields;
  std::vector<std::span<std::byte>> spans;
  for (const auto& field : spec().fields) {
    fields.emplace_back(static_cast<std::size_t>(field.num_bytes()));
    spans.emplace_back(fields.back());
  }
  read_sample({.index = index, .draw = index}, {input, target, spans});
  return target[0];
}

}  // namespace lockstep::data
