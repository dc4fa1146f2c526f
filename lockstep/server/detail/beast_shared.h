#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include <boost/asio/thread_pool.hpp>

#include "lockstep/server/http.h"

// What the connections of the engine have together. Only for beast_server.cpp.
namespace lockstep::server {

namespace asio = boost::asio;

// What all connections share.
struct Shared {
  Handler& handler;
  ServerOptions options;
  asio::thread_pool& waiting;  // answers what may wait
  std::atomic<int> connections{0};
  std::atomic<bool> stopping{false};
  std::atomic<std::int64_t> bodies_bytes{0};  // of all that are read and answered
  std::function<void()> on_close;             // one more may be accepted

  std::chrono::milliseconds idle() const {
    return std::chrono::milliseconds(options.idle_ms);
  }
  std::chrono::milliseconds patience() const {
    return std::chrono::milliseconds(options.request_ms);
  }
};

// The part of a body in what all bodies together may take.
class BodyShare {
 public:
  // Returns nothing if there is no room. A body that is alone always has it.
  static std::optional<BodyShare> take(Shared& shared, std::int64_t bytes) {
    const auto others = shared.bodies_bytes.fetch_add(bytes);
    BodyShare share(shared, bytes);
    if (others > 0 && others + bytes > shared.options.bodies_bytes) return std::nullopt;
    return share;
  }

  BodyShare(BodyShare&& other) noexcept
      : shared_(other.shared_), bytes_(std::exchange(other.bytes_, 0)) {}
  BodyShare& operator=(BodyShare&& other) noexcept {
    std::swap(shared_, other.shared_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  BodyShare(const BodyShare&) = delete;
  BodyShare& operator=(const BodyShare&) = delete;
  ~BodyShare() { shared_->bodies_bytes -= bytes_; }

 private:
  BodyShare(Shared& shared, std::int64_t bytes) : shared_(&shared), bytes_(bytes) {}

  Shared* shared_;
  std::int64_t bytes_;
};

}  // namespace lockstep::server
