#pragma once

#include "lockstep/base/error.h"

namespace lockstep::service {

// Why a request is not fulfilled.
enum class Refused {
  invalid,      // the request makes no sense: its sender can change it
  unknown,      // there is no such thing, or it is another user's
  not_allowed,  // the role does not allow it
  conflict,     // not in the state that it is in
  too_often,    // later
  too_large,
  unauthorized,  // no token, or none that counts
};

// An error whose text is for the sender of a request: it names nothing of this machine.
class Refusal : public Error {
 public:
  template <typename... Parts>
  explicit Refusal(Refused kind, const Parts&... parts)
      : Error(Fault::config, parts...), kind_(kind) {}

  Refused kind() const noexcept { return kind_; }

 private:
  Refused kind_;
};

}  // namespace lockstep::service
