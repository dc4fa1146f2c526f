#pragma once

#include <optional>
#include <string>

#include "lockstep/config/detail/problems.h"
#include "lockstep/config/load.h"

namespace lockstep::config::detail {

// The state that validate() hands from check to check.
class Checker {
 public:
  explicit Checker(const Loaded& loaded) : loaded_(loaded) {}

  // Reports a problem at the place where `key` was set.
  void refuse(const std::string& key, const std::string& text) {
    const auto source = loaded_.sources.find(key);
    const auto place = source == loaded_.sources.end() ? "" : place_of(source->second);
    problems_.add(place, key, text);
  }
  void finish() const { problems_.throw_if_any(); }

 private:
  const Loaded& loaded_;
  Problems problems_;
};

using Count = std::optional<std::int64_t>;

template <typename T>
Count count_of(const Auto<T>& value) {
  return value.is_auto() ? Count() : Count(value.value());
}

// Checks the knobs of the batch against each other and against parallel.ranks.
void check_batch(Checker& check, const Config& config);

// Checks the knobs of the task against each other.
void check_task(Checker& check, const TaskConfig& task);

}  // namespace lockstep::config::detail
