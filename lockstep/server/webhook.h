#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "lockstep/config/server.h"
#include "lockstep/service/job.h"

namespace lockstep::server {

// Tells an address of the operator's choice about changes of jobs: a POST with JSON and
// its signature, X-Lockstep-Signature: sha256=HMAC. Tries three times; what can not be
// delivered is in the log. Never holds up the queue.
class Webhook {
 public:
  // Throws Fault::io if the file of the key can not be read.
  explicit Webhook(const config::WebhookConfig& config);
  ~Webhook();
  Webhook(const Webhook&) = delete;
  Webhook& operator=(const Webhook&) = delete;

  void tell(const service::Job& job);

 private:
  void run(const std::stop_token& stop);
  void deliver(const std::string& body, const std::stop_token& stop);

  const std::string url_;
  std::string key_;
  std::mutex mutex_;  // guards the queue
  std::condition_variable_any woken_;
  std::deque<std::string> queue_;
  std::jthread worker_;
};

}  // namespace lockstep::server
