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

  // Throws one Fault::config with a line per problem, ten at most.
  void throw_if_any() const;

 private:
  std::vector<std::string> lines_;
};

}  // namespace lockstep::config::detail
