#pragma once

#include <optional>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::config {

// A value, or `auto`: the planner's to fill in. After planner::resolve none is left.
template <typename T>
class Auto {
 public:
  Auto() = default;
  explicit Auto(T value) : value_(std::move(value)) {}
  Auto& operator=(T value) {
    value_ = std::move(value);
    return *this;
  }

  bool is_auto() const noexcept { return !value_.has_value(); }
  const T& value() const {
    LOCKSTEP_CHECK(value_.has_value(),
                   "a knob is still auto; the planner was not asked");
    return *value_;
  }
  T value_or(T other) const { return value_.value_or(std::move(other)); }

  friend bool operator==(const Auto&, const Auto&) = default;

 private:
  std::optional<T> value_;
};

}  // namespace lockstep::config
