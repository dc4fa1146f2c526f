#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/service/recent.h"
#include "lockstep/service/store.h"

namespace lockstep::service {

// What a token allows. Each may do what those before it may.
enum class Role {
  viewer,  // see what its user has
  user,    // change what its user has
  admin,   // see and change everything
};

std::string_view name_of(Role role) noexcept;
std::optional<Role> role_of(std::string_view name) noexcept;

// Who asks.
struct Identity {
  std::string user;
  Role role = Role::viewer;
  std::string token;  // its id, not the secret; "local" on this machine

  bool may_see(std::string_view owner) const {
    return role == Role::admin || owner == user;
  }
  bool may_change(std::string_view owner) const {
    return role == Role::admin || (role == Role::user && owner == user);
  }
};

struct User {
  std::string name;
  std::string unix_user;  // "", but in databases of earlier versions
  Milliseconds created = 0;
};

struct TokenInfo {
  std::string id;
  std::string user;
  Role role = Role::viewer;
  Milliseconds created = 0;
  Milliseconds expires = 0;  // 0: never
  bool revoked = false;
};

// Throws Fault::config for a name that is no user's: letters, digits, _ and -, at most
// 64, beginning with a letter or a digit.
void check_user_name(std::string_view name);

// Adds a user if there is none of that name.
void add_user(Store& store, const std::string& name);
std::vector<User> users(Store& store);
std::optional<User> find_user(Store& store, std::string_view name);

struct NewToken {
  std::string user;
  Role role = Role::user;
  Milliseconds expires = 0;  // 0: never
};

struct MadeToken {
  std::string id;
  std::string secret;  // shown once: only its digest is kept
};

// Makes a token; its user is added if there is none.
MadeToken add_token(Store& store, const NewToken& token);
std::vector<TokenInfo> tokens(Store& store);

// Returns false if there is no such token.
bool revoke_token(Store& store, std::string_view id);

// Returns who has this secret; nothing for one that is unknown, revoked or expired.
std::optional<Identity> identify(Store& store, std::string_view secret);

// The same for many requests: a token is looked up again when the database has changed
// since, in this process or another. Keeps digests, and only of tokens that are good.
//
// Threads: any.
class Identities {
 public:
  explicit Identities(Store& store);

  std::optional<Identity> identify(std::string_view secret);

 private:
  struct Kept {
    StoreVersion version;
    Identity who;
    Milliseconds expires = 0;  // 0: never
  };

  Store& store_;
  std::mutex mutex_;  // guards kept_
  Recent<std::string, Kept> kept_;
};

}  // namespace lockstep::service
