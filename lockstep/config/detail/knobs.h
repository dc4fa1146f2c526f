#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/config/config.h"
#include "lockstep/config/detail/value.h"

namespace lockstep::config {
struct ServerConfig;
}

namespace lockstep::config::detail {

// One field of one Config with its type erased, for reading, printing and the reference
// page. Lifetime: not longer than the Config it was made for.
struct Knob {
  std::string key;  // "optim.lr"
  std::string_view section;
  std::string_view name;
  Field field;
  Type type;
  std::function<Problem(const Node&)> read;
  std::function<Written()> write;
};

struct Section {
  std::string_view name;
  std::string_view help;
};

struct Knobs {
  std::vector<Section> sections;
  std::vector<Knob> all;

  const Knob* find(std::string_view key) const noexcept;
  bool has_section(std::string_view name) const noexcept;
  std::vector<std::string> names_in(std::string_view section) const;
};

Knobs knobs_of(Config& config);
Knobs knobs_of(ServerConfig& config);

// Returns "unknown key 'optim.lrr'; did you mean 'optim.lr'?"; also finds a key that
// stands in another section.
std::string unknown_key(const Knobs& knobs, std::string_view section,
                        std::string_view name);
std::string unknown_section(const Knobs& knobs, std::string_view name);
// Returns what a key of an unknown section is called here, as far as its last part says
// it: "unknown section 'optimizer'; did you mean 'optim.lr'?" of "optimizer.lr".
std::string unknown_section_of(const Knobs& knobs, std::string_view key);
// Returns "; that is 'optim.lr' here" of a name that another tool has for it, else "".
std::string foreign_hint(const Knobs& knobs, std::string_view name);

}  // namespace lockstep::config::detail
