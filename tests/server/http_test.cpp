// The engine, over real sockets.
#include "lockstep/server/http.h"

#include <atomic>
#include <fstream>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lockstep/base/text.h"
#include "lockstep/server/sse.h"
#include "tests/support/support.h"

namespace lockstep::server {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class Echo : public Handler {
 public:
  AwaitedRequest expect(std::string_view, std::string_view target) override {
    return {.body_bytes = target == "/large" ? 200'000 : 1000,
            .waits = target == "/waits"};
  }

  std::optional<Response> refuse_sender(const Request& head) override {
    if (head.header("x-who") != "nobody") return std::nullopt;
    return refuse(401, "who are you?");
  }

  Response handle(const Request& request) override {
    ++requests;
    Response response;
    if (request.target == "/waits") may_end.wait(false);
    if (request.target == "/stream") {
      response.stream = tail_events(
          {.file = file, .event = "line", .is_over = [this] { return over.load(); }});
      response.type = "text/event-stream";
      return response;
    }
    response.body = request.method + " " + request.target + " " + request.body;
    return response;
  }

  Response refuse(int status, std::string_view why) override {
    Response response;
    response.status = status;
    response.body = std::string(why);
    return response;
  }

  std::atomic<int> requests{0};
  std::atomic<bool> over{false};
  std::atomic<bool> may_end{false};
  files::Path file;
};

class HttpTest : public ::testing::Test {
 protected:
  void serve(ServerOptions options = {}) {
    server_ = make_http_server(options, echo_);
    server_->start();
  }

  // Sends bytes as they are; returns all that comes until the connection ends.
  std::string exchange(const std::string& bytes, bool close_ours = true) {
    const auto socket = connect();
    static_cast<void>(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
    if (close_ours) ::shutdown(socket.get(), SHUT_WR);
    return all_of(socket.get());
  }

  files::Descriptor connect() const {
    files::Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(server_->port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(
        ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)),
        0);
    return socket;
  }

  static std::string all_of(int socket) {
    std::string text;
    std::string piece(4096, '\0');
    pollfd ready{.fd = socket, .events = POLLIN, .revents = 0};
    while (::poll(&ready, 1, static_cast<int>(test::kPatience.count())) > 0) {
      const auto got = ::recv(socket, piece.data(), piece.size(), 0);
      if (got <= 0) break;
      text.append(piece, 0, static_cast<std::size_t>(got));
    }
    return text;
  }

  std::string url() const {
    return "http://127.0.0.1:" + std::to_string(server_->port());
  }

  Echo echo_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpTest, AnswersAndKeepsAConnection) {
  serve();
  const auto text = exchange(
      "GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
      "POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi"
      "GET /c HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(text, HasSubstr("GET /a "));
  EXPECT_THAT(text, HasSubstr("POST /b hi"));
  EXPECT_THAT(text, HasSubstr("GET /c "));
  EXPECT_EQ(echo_.requests, 3);
}

TEST_F(HttpTest, OurClientUnderstandsIt) {
  serve();
  const auto answer = send_request(
      {.url = url()}, {.method = "PUT", .target = "/x?y=1", .body = "body"});
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "PUT /x?y=1 body");
}

TEST_F(HttpTest, AClientThatWantsToBeToldToGoOnIs) {
  serve();
  const auto text = exchange(
      "POST /b HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n"
      "Connection: close\r\n\r\nhi");
  EXPECT_THAT(text, StartsWith("HTTP/1.1 100 Continue"));
  EXPECT_THAT(text, HasSubstr("POST /b hi"));
}

// Shapes by which a request is smuggled past a proxy, or a server is worn down.
TEST_F(HttpTest, WhatIsNoRequestIsRefusedAndNotHandled) {
  serve({.header_bytes = 2048});
  const std::string begin = "POST / HTTP/1.1\r\nHost: x\r\n";
  for (const auto& bytes : std::vector<std::string>{
           begin + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
           begin + "Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
           begin + "Content-Length: 4, 5\r\n\r\nabcde",
           begin + "Content-Length: -1\r\n\r\n",
           begin + "Content-Length: +4\r\n\r\nabcd",
           begin + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
           begin +
               "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n",
           begin + "Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
           begin + "X : y\r\n\r\n", begin + "X\r\n\r\n",
           begin + std::string(5000, 'a') + ": b\r\n\r\n", "GET / HTTP/9.9\r\n\r\n",
           std::string("\x16\x03\x01\x02\x00\x01\x00", 7),
           "GET /" + std::string(5000, 'a') + " HTTP/1.1\r\n\r\n",
           begin + "Content-Length: 99999\r\n\r\n",
           begin + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nx"}) {
    const auto text = exchange(bytes);
    EXPECT_TRUE(text.empty() || text.rfind("HTTP/1.1 4", 0) == 0)
        << bytes.substr(0, 90) << "\n"
        << text.substr(0, 90);
  }
  EXPECT_EQ(echo_.requests, 0);
  EXPECT_THAT(exchange("GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
              HasSubstr("GET /a"));
}

TEST_F(HttpTest, AFloodOfSmallChunksEndsAtTheLimit) {
  serve();
  std::string bytes =
      "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 20'000; ++i) bytes += "1\r\na\r\n";
  EXPECT_THAT(exchange(bytes + "0\r\n\r\n"), HasSubstr("413"));
  EXPECT_EQ(echo_.requests, 0);
}

// It has its answer before it has sent a byte of the body, and is not told to go on.
TEST_F(HttpTest, TheBodyOfNobodyIsNotReadAtAll) {
  serve();
  const auto text = exchange(
      "POST /b HTTP/1.1\r\nHost: x\r\nX-Who: nobody\r\nExpect: 100-continue\r\n"
      "Content-Length: 900\r\n\r\n",
      /*close_ours=*/false);
  EXPECT_THAT(text, StartsWith("HTTP/1.1 401 "));
  EXPECT_EQ(echo_.requests, 0);
}

TEST_F(HttpTest, AllBodiesTogetherHaveALimit) {
  serve({.bodies_bytes = 150'000});
  const std::string post =
      "POST /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: ";
  const auto first = connect();
  const std::string begun = post + "100000\r\nExpect: 100-continue\r\n\r\n";
  static_cast<void>(::send(first.get(), begun.data(), begun.size(), MSG_NOSIGNAL));
  std::string told(100, '\0');
  EXPECT_GT(::recv(first.get(), told.data(), told.size(), 0), 0);
  EXPECT_THAT(told, StartsWith("HTTP/1.1 100"));
  EXPECT_THAT(exchange(post + "80000\r\n\r\n"), StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(exchange(post + "2\r\n\r\nhi"), HasSubstr("POST /large hi"));
  const std::string rest(100'000, 'a');
  static_cast<void>(::send(first.get(), rest.data(), rest.size(), MSG_NOSIGNAL));
  EXPECT_THAT(all_of(first.get()), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(exchange(post + "80000\r\n\r\n" + std::string(80'000, 'b')),
              StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpTest, ASlowClientIsCutOffAndOthersAreServed) {
  serve({.max_connections = 3, .idle_ms = 1000, .request_ms = 1000});
  std::vector<files::Descriptor> slow;
  for (int i = 0; i < 3; ++i) {
    slow.push_back(connect());
    static_cast<void>(::send(slow.back().get(), "GET / HT", 8, MSG_NOSIGNAL));
  }
  // All places are taken until the slow ones have lost theirs.
  EXPECT_THAT(exchange("GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
              HasSubstr("GET /a"));
  for (const auto& socket : slow) EXPECT_EQ(all_of(socket.get()), "");
  EXPECT_EQ(echo_.requests, 1);
}

TEST_F(HttpTest, WhatHasToWaitHoldsUpNobody) {
  serve({.threads = 1});
  const auto waiting = connect();
  const std::string bytes =
      "POST /waits HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n"
      "\r\nhi";
  static_cast<void>(::send(waiting.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
  ASSERT_TRUE(test::eventually([&] { return echo_.requests == 1; }));
  EXPECT_THAT(exchange("GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
              HasSubstr("GET /a"));
  echo_.may_end = true;
  echo_.may_end.notify_all();
  EXPECT_THAT(all_of(waiting.get()), HasSubstr("POST /waits hi"));
}

// The time of a request begins with its first byte, whatever was before on the
// connection.
TEST_F(HttpTest, ASlowRequestBehindAnotherIsCutOff) {
  serve({.idle_ms = 600'000, .request_ms = 300});
  const auto socket = connect();
  const std::string bytes = "GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HT";
  static_cast<void>(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
  // Ends because the server does: our side stays open.
  EXPECT_THAT(all_of(socket.get()), HasSubstr("GET /a "));
  EXPECT_EQ(echo_.requests, 1);
}

TEST_F(HttpTest, TheHeadOfAnythingHasNoBody) {
  const files::TemporaryDirectory folder;
  echo_.file = folder.path() / "lines";
  test::write_file(echo_.file, "one\n");
  serve();
  for (const std::string target : {"/a", "/stream"}) {
    const auto text = exchange("HEAD " + target +
                               " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    EXPECT_THAT(text, StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_EQ(text.find("\r\n\r\n"), text.size() - 4) << text;
  }
  EXPECT_THAT(exchange("HEAD /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
              HasSubstr("Content-Length: 8\r\n"));
}

TEST_F(HttpTest, AStreamGoesOnWhereItWasCutOff) {
  const files::TemporaryDirectory folder;
  echo_.file = folder.path() / "lines";
  test::write_file(echo_.file, "one\ntwo\nhalf");
  serve();
  std::string seen;
  send_request({.url = url()}, {.method = "GET", .target = "/stream"},
               [&](std::string_view piece) {
                 seen += piece;
                 return seen.find("data: two") == std::string::npos;
               });
  EXPECT_THAT(seen, HasSubstr("id: 4\nevent: line\ndata: one\n\n"));
  EXPECT_THAT(seen, HasSubstr("id: 8\n"));
  EXPECT_THAT(seen, ::testing::Not(HasSubstr("half")));
  // The id of the last event is where the rest begins.
  std::ofstream(echo_.file, std::ios::app) << " now whole\n";
  auto rest =
      tail_events({.file = echo_.file, .event = "line", .offset = 8, .is_over = [] {
                     return true;
                   }});
  EXPECT_THAT(rest->next(), HasSubstr("id: 23\nevent: line\ndata: half now whole\n\n"));
  EXPECT_EQ(rest->next(), "");
  EXPECT_TRUE(rest->is_over());
  // In the middle of a line is before the next one.
  auto inside =
      tail_events({.file = echo_.file, .event = "line", .offset = 5, .is_over = [] {
                     return true;
                   }});
  const auto events = inside->next();
  EXPECT_THAT(events, HasSubstr("data: half now whole\n\n"));
  EXPECT_THAT(events, ::testing::Not(HasSubstr("data: wo")));
}

TEST_F(HttpTest, ATakenPortIsRefusedWithItsKnob) {
  serve();
  Echo other;
  const auto text = test::error_text(
      Fault::config, [&] { make_http_server({.port = server_->port()}, other); });
  EXPECT_THAT(text, HasSubstr("http.port="));
}

TEST_F(HttpTest, TlsIsSpokenWithItsCertificateAndNothingElse) {
  const files::TemporaryDirectory folder;
  const auto key = (folder.path() / "key.pem").string();
  const auto certificate = (folder.path() / "cert.pem").string();
  const auto made =
      test::run({"openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout",
                 key, "-out", certificate, "-days", "2", "-subj", "/CN=localhost",
                 "-addext", "subjectAltName=DNS:localhost"});
  ASSERT_TRUE(made.end.ok()) << made.err;
  serve({.certificate = certificate, .key = key});
  const auto place = "https://localhost:" + std::to_string(server_->port());
  EXPECT_EQ(send_request({.url = place, .authority = certificate},
                         {.method = "GET", .target = "/s"})
                .body,
            "GET /s ");
  // One that nobody vouches for is not trusted.
  EXPECT_TRUE(test::error_of(
      [&] { send_request({.url = place}, {.method = "GET", .target = "/s"}); }));
  EXPECT_THAT(exchange("GET /a HTTP/1.1\r\nHost: x\r\n\r\n"),
              ::testing::Not(HasSubstr("GET /a")));
  server_->reload_certificate();
  test::write_file(certificate, "broken");
  EXPECT_TRUE(test::error_of([&] { server_->reload_certificate(); }));
}

}  // namespace
}  // namespace lockstep::server
