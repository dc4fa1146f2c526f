#include "lockstep/service/access.h"

#include <algorithm>
#include <array>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/service/secrets.h"

namespace lockstep::service {
namespace {

constexpr std::array<std::string_view, 3> kRoles{"viewer", "user", "admin"};

// "lst_" lets scanners of repositories find a secret that was committed.
constexpr std::string_view kSecretPrefix = "lst_";
constexpr std::size_t kSecretBytes = 32;
constexpr std::size_t kLongestName = 64;
constexpr std::size_t kMostKept = 10'000;

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool may_be_secret(std::string_view text) {
  return text::starts_with(text, kSecretPrefix) &&
         text.size() == kSecretPrefix.size() + 2 * kSecretBytes;
}

struct GoodToken {
  Identity who;
  Milliseconds expires = 0;
};

// Looked up by digest, so that the time it takes tells nothing about the secret.
std::optional<GoodToken> find_token(Store& store, const std::string& hash) {
  const std::lock_guard lock(store.mutex());
  auto found = store.database().prepare(
      "SELECT id, user, role, hash, expires FROM tokens WHERE hash = ? AND revoked = 0 "
      "AND (expires = 0 OR expires > ?)");
  found.bind(hash).bind(store.now());
  if (!found.step() || !same_secret(found.text(3), hash)) return std::nullopt;
  const auto role = role_of(found.text(2));
  if (!role) return std::nullopt;
  return GoodToken{{.user = found.text(1), .role = *role, .token = found.text(0)},
                   found.integer(4)};
}

}  // namespace

std::string_view name_of(Role role) noexcept {
  return kRoles.at(static_cast<std::size_t>(role));
}

std::optional<Role> role_of(std::string_view name) noexcept {
  for (std::size_t i = 0; i < kRoles.size(); ++i) {
    if (kRoles.at(i) == name) return static_cast<Role>(i);
  }
  return std::nullopt;
}

void check_user_name(std::string_view name) {
  const bool good = !name.empty() && name.size() <= kLongestName && is_plain(name[0]) &&
                    std::all_of(name.begin(), name.end(), [](char c) {
                      return is_plain(c) || c == '_' || c == '-';
                    });
  if (good) return;
  throw Error(Fault::config, "user: '", name.substr(0, kLongestName),
              "' is not a user name; write up to ", kLongestName,
              " letters, digits, _ and -, the first one a letter or a digit");
}

void add_user(Store& store, const std::string& name) {
  check_user_name(name);
  store.transaction([&] {
    store.database()
        .prepare(
            "INSERT INTO users (name, created) VALUES (?, ?) ON CONFLICT (name) DO "
            "NOTHING")
        .bind(name)
        .bind(store.now())
        .run();
  });
}

std::vector<User> users(Store& store) {
  std::vector<User> all;
  store.transaction([&] {
    auto found = store.database().prepare(
        "SELECT name, unix_user, created FROM users ORDER BY name");
    while (found.step()) {
      all.push_back({found.text(0), found.text(1), found.integer(2)});
    }
  });
  return all;
}

std::optional<User> find_user(Store& store, std::string_view name) {
  const std::lock_guard lock(store.mutex());
  auto found = store.database().prepare(
      "SELECT name, unix_user, created FROM users WHERE name = ?");
  found.bind(name);
  if (!found.step()) return std::nullopt;
  return User{found.text(0), found.text(1), found.integer(2)};
}

MadeToken add_token(Store& store, const NewToken& token) {
  const MadeToken made{.id = "tok-" + random_hex(6),
                       .secret = str(kSecretPrefix, random_hex(kSecretBytes))};
  store.transaction([&] {
    add_user(store, token.user);
    store.database()
        .prepare(
            "INSERT INTO tokens (id, hash, user, role, created, expires) VALUES "
            "(?, ?, ?, ?, ?, ?)")
        .bind(made.id)
        .bind(sha256(made.secret))
        .bind(token.user)
        .bind(name_of(token.role))
        .bind(store.now())
        .bind(token.expires)
        .run();
  });
  return made;
}

std::vector<TokenInfo> tokens(Store& store) {
  std::vector<TokenInfo> all;
  store.transaction([&] {
    auto found = store.database().prepare(
        "SELECT id, user, role, created, expires, revoked FROM tokens ORDER BY "
        "created");
    while (found.step()) {
      all.push_back({found.text(0), found.text(1),
                     role_of(found.text(2)).value_or(Role::viewer), found.integer(3),
                     found.integer(4), found.integer(5) != 0});
    }
  });
  return all;
}

bool revoke_token(Store& store, std::string_view id) {
  bool found = false;
  store.transaction([&] {
    store.database()
        .prepare("UPDATE tokens SET revoked = 1 WHERE id = ?")
        .bind(id)
        .run();
    found = store.database().changes() == 1;
  });
  return found;
}

std::optional<Identity> identify(Store& store, std::string_view secret) {
  if (!may_be_secret(secret)) return std::nullopt;
  const auto found = find_token(store, sha256(secret));
  if (!found) return std::nullopt;
  return found->who;
}

Identities::Identities(Store& store) : store_(store), kept_(kMostKept) {}

std::optional<Identity> Identities::identify(std::string_view secret) {
  if (!may_be_secret(secret)) return std::nullopt;
  const auto hash = sha256(secret);
  // Before it is looked up: what changes in between is seen the next time.
  const auto now = store_.version();
  {
    const std::lock_guard lock(mutex_);
    const auto* kept = kept_.find(hash);
    if (kept != nullptr && kept->version == now) {
      if (kept->expires != 0 && kept->expires <= store_.now()) return std::nullopt;
      return kept->who;
    }
  }
  const auto found = find_token(store_, hash);
  if (!found) return std::nullopt;
  const std::lock_guard lock(mutex_);
  kept_.put(hash, {now, found->who, found->expires});
  return found->who;
}

}  // namespace lockstep::service
