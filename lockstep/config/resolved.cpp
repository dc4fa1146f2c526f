#include "lockstep/config/resolved.h"

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::config {
namespace {

// The visitor of describe() that looks for `auto`.
class AutoKeys {
 public:
  template <typename Members>
  void section(std::string_view name, Members& members, std::string_view) {
    section_ = name;
    describe(members, *this);
  }

  template <typename T>
  void field(std::string_view name, const T& value, const Field& about) {
    if (!about.task_decides && is_auto(value)) keys.push_back(str(section_, ".", name));
  }

  std::vector<std::string> keys;

 private:
  template <typename T>
  static bool is_auto(const T& value) {
    if constexpr (requires { T::automatic; }) {
      return value == T::automatic;
    } else if constexpr (requires { value.is_auto(); }) {
      return value.is_auto();
    } else {
      return false;
    }
  }

  std::string_view section_;
};

}  // namespace

std::vector<std::string> auto_keys(const Config& config) {
  auto copy = config;  // describe() is for readers and writers alike
  AutoKeys visitor;
  describe(copy, visitor);
  return visitor.keys;
}

Resolved::Resolved(Config config) : config_(std::move(config)) {
  const auto keys = auto_keys(config_);
  if (keys.empty()) return;
  throw Error(Fault::config, text::join(keys, ", "), keys.size() == 1 ? " is" : " are",
              " still auto: the planner has to be asked (lockstep train, plan)");
}

}  // namespace lockstep::config
