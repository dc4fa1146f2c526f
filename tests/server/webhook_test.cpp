// Webhooks, with a receiver that listens on a socket, and signatures as openssl
// computes them.
#include "lockstep/server/webhook.h"

#include <mutex>

#include "tests/server/support/served.h"

namespace lockstep::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

// Remembers what it got.
class Receiver : public Handler {
 public:
  AwaitedRequest expect(std::string_view, std::string_view) override {
    return {.body_bytes = 1 << 20};
  }

  Response handle(const Request& request) override {
    const std::lock_guard lock(mutex_);
    requests_.push_back(request);
    Response response;
    response.status = failures_ > 0 ? 503 : 204;
    failures_ = std::max(0, failures_ - 1);
    return response;
  }

  Response refuse(int status, std::string_view) override {
    Response response;
    response.status = status;
    return response;
  }

  void fail_next(int times) {
    const std::lock_guard lock(mutex_);
    failures_ = times;
  }

  std::vector<Request> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  std::mutex mutex_;  // guards the rest
  std::vector<Request> requests_;
  int failures_ = 0;
};

class WebhookTest : public ::testing::Test {
 protected:
  WebhookTest() {
    server_ = make_http_server({}, receiver_);
    server_->start();
    test::write_file(key_file(), "a key of the operator\n");
  }

  std::string key_file() const { return (folder_.path() / "key").string(); }
  std::string url() const {
    return "http://127.0.0.1:" + std::to_string(server_->port()) +
           "/hook?from=lockstep";
  }

  // The HMAC as another program computes it.
  std::string signature_of(const std::string& body) const {
    const auto file = folder_.path() / "body";
    test::write_file(file, body);
    const auto output = test::run({"openssl", "dgst", "-sha256", "-hmac",
                                   "a key of the operator", "-r", file.string()});
    EXPECT_TRUE(output.end.ok()) << output.err;
    return "sha256=" + output.out.substr(0, 64);
  }

  void expect_signed(const Request& request) const {
    EXPECT_EQ(request.header("x-lockstep-signature"), signature_of(request.body));
  }

  Receiver receiver_;
  std::unique_ptr<HttpServer> server_;
  files::TemporaryDirectory folder_;
};

service::Job some_job(const std::string& id) {
  service::Job job;
  job.id = id;
  job.user = "ada";
  return job;
}

TEST_F(WebhookTest, AChangeIsAPostWithASignature) {
  Webhook webhook({.url = url(), .secret_file = key_file()});
  webhook.tell(some_job("job-1"));
  ASSERT_TRUE(test::eventually([&] { return receiver_.requests().size() == 1; }));
  const auto request = receiver_.requests().at(0);
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.target, "/hook?from=lockstep");
  EXPECT_EQ(Json::parse(request.body)["job"]["id"], "job-1");
  expect_signed(request);
}

TEST_F(WebhookTest, WhatIsNotTakenIsSentAgainAndTheRestWaitsForIt) {
  receiver_.fail_next(1);
  Webhook webhook({.url = url(), .secret_file = key_file()});
  webhook.tell(some_job("job-1"));
  webhook.tell(some_job("job-2"));
  ASSERT_TRUE(test::eventually([&] { return receiver_.requests().size() == 3; }));
  std::vector<std::string> ids;
  for (const auto& request : receiver_.requests()) {
    ids.push_back(Json::parse(request.body)["job"]["id"]);
    expect_signed(request);
  }
  EXPECT_THAT(ids, ElementsAre("job-1", "job-1", "job-2"));
}

TEST_F(WebhookTest, AReceiverThatNeverAnswersDoesNotHoldUpTheEnd) {
  // Listens and does not accept: the kernel takes the connection all the same.
  const files::Descriptor silent(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::bind(silent.get(), generic, size), 0);
  ASSERT_EQ(::listen(silent.get(), 4), 0);
  ASSERT_EQ(::getsockname(silent.get(), generic, &size), 0);
  Webhook webhook({.url = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)),
                   .secret_file = key_file()});
  webhook.tell(some_job("job-1"));
  pollfd ready{.fd = silent.get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&ready, 1, static_cast<int>(test::kPatience.count())), 1);
}  // its destructor returns, or this test runs into its time limit

TEST_F(WebhookTest, AKeyThatCanNotBeReadIsRefusedAtTheStart) {
  const auto text = test::error_text(
      Fault::io, [&] { Webhook({.url = url(), .secret_file = "/nonexistent/key"}); });
  EXPECT_THAT(text, HasSubstr("/nonexistent/key"));
}

TEST_F(WebhookTest, EveryChangeOfAJobIsToldInOrder) {
  test::Served served;
  served.start({"webhook.url=" + url(), "webhook.secret_file=" + key_file()});
  const auto done = served.submit(5);
  ASSERT_TRUE(served.reaches(done, "done"));
  const auto cancelled = served.submit(test::kEndless);
  EXPECT_EQ(served.ask("POST", "/v1/jobs/" + cancelled + "/cancel").status, 200);
  const auto states_of = [&](const std::string& id) {
    std::vector<std::string> states;
    for (const auto& request : receiver_.requests()) {
      const auto job = Json::parse(request.body)["job"];
      if (job["id"] == id) states.push_back(job["state"]);
    }
    return states;
  };
  ASSERT_TRUE(test::eventually([&] {
    const auto states = states_of(cancelled);
    return !states.empty() && states.back() == "cancelled";
  }));
  const auto states = states_of(done);
  ASSERT_GE(states.size(), 3U);
  EXPECT_EQ(states[0], "queued");
  EXPECT_EQ(states[1], "planning");
  EXPECT_EQ(states.back(), "done");
  EXPECT_EQ(states_of(cancelled)[0], "queued");
  for (const auto& request : receiver_.requests()) expect_signed(request);
}

}  // namespace
}  // namespace lockstep::server
