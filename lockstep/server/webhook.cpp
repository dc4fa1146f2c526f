#include "lockstep/server/webhook.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/server/detail/route.h"
#include "lockstep/service/secrets.h"

namespace lockstep::server {
namespace {

constexpr std::size_t kMostWaiting = 10'000;
constexpr int kTries = 3;
constexpr std::chrono::seconds kWebhookPatience{10};

std::string path_of(const std::string& url) {
  const auto host = url.find("://");
  const auto slash = url.find('/', host == std::string::npos ? 0 : host + 3);
  return slash == std::string::npos ? "/" : url.substr(slash);
}

}  // namespace

Webhook::Webhook(const config::WebhookConfig& config) : url_(config.url) {
  constexpr std::int64_t kLongestKey = 4096;
  if (!config.secret_file.empty()) {
    key_ = std::string(text::trim(files::read(config.secret_file, kLongestKey)));
  }
  if (url_.empty()) return;
  worker_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

Webhook::~Webhook() {
  worker_.request_stop();
  woken_.notify_all();
}

void Webhook::tell(const service::Job& job) {
  if (url_.empty()) return;
  const Json json = {{"event", "job.changed"}, {"job", json_of(job)}};
  {
    const std::lock_guard lock(mutex_);
    if (queue_.size() >= kMostWaiting) queue_.pop_front();
    queue_.push_back(json.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  woken_.notify_one();
}

void Webhook::run(const std::stop_token& stop) {
  while (true) {
    std::string body;
    {
      std::unique_lock lock(mutex_);
      if (!woken_.wait(lock, stop, [this] { return !queue_.empty(); })) return;
      body = std::move(queue_.front());
      queue_.pop_front();
    }
    deliver(body, stop);
  }
}

void Webhook::deliver(const std::string& body, const std::stop_token& stop) {
  Request request{.method = "POST", .target = path_of(url_), .body = body};
  request.headers = {
      {"Content-Type", "application/json"},
      {"X-Lockstep-Signature", "sha256=" + service::signature(key_, body)}};
  for (int attempt = 1; attempt <= kTries && !stop.stop_requested(); ++attempt) {
    try {
      const auto answer = send_request(
          {.url = url_, .patience = kWebhookPatience, .stop = stop}, request);
      if (answer.status < 300) return;
      log::warning("server", str("webhook: status ", answer.status));
    } catch (const Error& error) {
      if (stop.stop_requested()) return;
      log::warning("server", str("webhook: ", error.what()));
    }
    std::unique_lock lock(mutex_);
    woken_.wait_for(lock, stop, std::chrono::seconds(attempt), [] { return false; });
  }
}

}  // namespace lockstep::server
