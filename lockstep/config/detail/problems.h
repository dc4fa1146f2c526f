#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::config::detail {

// Collects all problems, so that a user fixes a recipe in one go.
class Problems {
 public:
  // Adds a line "place: key: text"; an empty part is left out.
  void add(std::string_view place, std::string_view key, std::string_view text);

  // Returns whether there are so many that looking for more helps nobody.
  bool are_many() const noexcept { return lines_.size() >= 100; }

  // Throws one Fault::config with a line per problem, ten at most.
  void throw_if_any() const;

 private:
  std::vector<std::string> lines_;
};

}  // namespace lockstep::config::detail
