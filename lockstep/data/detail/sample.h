#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep::data::detail {

// A sample in memory of its own, one after the other.
//
// Lifetime: the data set outlives it.
class Sample {
 public:
  explicit Sample(const Dataset& dataset);

  void read(std::int64_t index);

  std::int64_t length_of_input() const { return lengths_[0]; }

  // Returns its first target. REQUIRES: targets are whole numbers, of any type.
  std::int64_t first_class() const;
  // Returns its targets, but for those that its field "target_mask" leaves out.
  // REQUIRES: as first_class().
  std::vector<std::int64_t> classes() const;

 private:
  // Returns the number of its targets, where it varies.
  std::size_t num_targets() const;

  const Dataset& dataset_;
  const std::vector<FieldSpec> specs_;  // input, target, fields
  std::optional<std::size_t> mask_;     // of them
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::span<std::byte>> spans_;
  std::vector<std::int64_t> lengths_;
};

}  // namespace lockstep::data::detail
