// A server as a process under requests that are made to wear it down: it goes on to
// answer, and its memory stays within bounds.
#include <csignal>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "lockstep/base/text.h"
#include "tests/server/support/served.h"

namespace lockstep::server {
namespace {

constexpr std::int64_t kMostMoreBytes = 64 << 20;

class FloodTest : public ::testing::Test {
 protected:
  explicit FloodTest(const std::string& token = "") {
    served_.use_token(token);
    served_.start({"http.request_timeout=2s", "http.idle_timeout=2s"});
    const auto colon = served_.url().rfind(':');
    port_ = std::stoi(served_.url().substr(colon + 1));
    // What it takes for its first answers is no flood's.
    for (int i = 0; i < 50; ++i) served_.ask("GET", "/v1/jobs");
    before_ = memory();
  }

  // The largest that the process has been.
  std::int64_t memory() const {
    const auto text =
        test::read_file("/proc/" + std::to_string(served_.pid()) + "/status");
    const auto at = text.find("VmHWM:");
    return std::stoll(text.substr(at + 6)) * 1024;
  }

  files::Descriptor connect() const {
    files::Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port_));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(
        ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)),
        0);
    return socket;
  }

  // Sends as much as is taken; the other side may hang up before the end.
  static void send_some(int socket, std::string_view bytes) {
    while (!bytes.empty()) {
      const auto sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
  }

  static std::string answer_of(int socket) {
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

  void expect_unharmed() {
    EXPECT_EQ(served_.ask("GET", "/healthz").status, 200);
    EXPECT_LT(memory() - before_, kMostMoreBytes);
  }

  test::Served served_;
  int port_ = 0;
  std::int64_t before_ = 0;
};

TEST_F(FloodTest, ClientsThatNeverFinishTheirHeaders) {
  std::vector<files::Descriptor> slow;
  for (int i = 0; i < 400; ++i) {
    slow.push_back(connect());
    send_some(slow.back().get(), "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nX: ");
  }
  EXPECT_EQ(served_.ask("GET", "/healthz").status, 200);
  // Each is cut off, not answered.
  for (const auto& socket : slow) EXPECT_EQ(answer_of(socket.get()), "");
  expect_unharmed();
}

// However many connections there are, and whatever they wait for.
TEST_F(FloodTest, ConnectionsHaveNoThreadsOfTheirOwn) {
  const auto threads = [&] {
    return std::distance(std::filesystem::directory_iterator(
                             "/proc/" + std::to_string(served_.pid()) + "/task"),
                         std::filesystem::directory_iterator());
  };
  const auto before = threads();
  const auto id = served_.submit_held(20);
  ASSERT_TRUE(served_.reaches(id, "running"));
  const auto stream =
      "GET /v1/runs/" + id + "/metrics/stream HTTP/1.1\r\nHost: localhost\r\n\r\n";
  std::vector<files::Descriptor> open;
  std::string piece(64, '\0');
  for (int i = 0; i < 200; ++i) {
    open.push_back(connect());
    send_some(open.back().get(), i % 2 == 0 ? stream : "GET /healthz HTTP/1.1\r\n");
    if (i % 2 != 0) continue;
    ASSERT_GT(::recv(open.back().get(), piece.data(), piece.size(), 0), 0);
  }
  EXPECT_EQ(threads(), before);
  expect_unharmed();
}

TEST_F(FloodTest, BodiesThatAreAnnouncedAndDoNotCome) {
  std::vector<files::Descriptor> open;
  for (int i = 0; i < 400; ++i) {
    open.push_back(connect());
    send_some(open.back().get(),
              "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
              "2000000\r\n\r\n{");
  }
  EXPECT_EQ(served_.ask("GET", "/healthz").status, 200);
  expect_unharmed();
}

TEST_F(FloodTest, HeadersWithoutAnEnd) {
  const std::string line = "X-Flood: " + std::string(4000, 'a') + "\r\n";
  for (int i = 0; i < 20; ++i) {
    const auto socket = connect();
    send_some(socket.get(), "GET / HTTP/1.1\r\nHost: localhost\r\n");
    for (int k = 0; k < 100; ++k) send_some(socket.get(), line);
  }
  expect_unharmed();
}

TEST_F(FloodTest, ChunksWithoutAnEnd) {
  std::string chunks;
  for (int i = 0; i < 20'000; ++i) chunks += "1\r\n \r\n";
  for (int i = 0; i < 4; ++i) {
    const auto socket = connect();
    send_some(socket.get(),
              "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: "
              "chunked\r\n\r\n");
    // 80 MB as they travel, 14 MB of body: far beyond the limit of a body.
    for (int k = 0; k < 700; ++k) {
      pollfd ready{.fd = socket.get(), .events = POLLIN, .revents = 0};
      if (::poll(&ready, 1, 0) > 0) break;  // it has said what it has to say
      send_some(socket.get(), chunks);
    }
  }
  expect_unharmed();
}

// What a chunk says beside its size, and the fields behind the last one.
TEST_F(FloodTest, ChunksThatSayTooMuchOfThemselves) {
  const std::string piece(1 << 20, 'a');
  const std::string fields = "X: " + std::string(1000, 'a') + "\r\n";
  for (const auto* begin : {"1;", "1\r\nx\r\n0\r\n"}) {
    const auto socket = connect();
    send_some(socket.get(),
              "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: "
              "chunked\r\n\r\n" +
                  std::string(begin));
    const bool are_fields = begin[1] != ';';
    std::string more = piece;
    if (are_fields) {
      more.clear();
      while (more.size() < piece.size()) more += fields;
    }
    for (int k = 0; k < 200; ++k) {
      pollfd ready{.fd = socket.get(), .events = POLLIN, .revents = 0};
      if (::poll(&ready, 1, 0) > 0) break;
      send_some(socket.get(), more);
    }
    const auto answer = answer_of(socket.get());
    EXPECT_TRUE(answer.empty() || answer.rfind("HTTP/1.1 4", 0) == 0)
        << answer.substr(0, 90);
  }
  expect_unharmed();
}

// A server that wants tokens, and clients that have none.
class StrangersTest : public FloodTest {
 protected:
  StrangersTest() : FloodTest("none") {}
};

TEST_F(StrangersTest, WholeBodiesOfThoseWithoutAToken) {
  const std::string piece(1 << 20, 'a');
  std::vector<files::Descriptor> sockets;
  for (int i = 0; i < 20; ++i) {
    sockets.push_back(connect());
    send_some(sockets.back().get(),
              "PUT /v1/files/file-1/parts?offset=0 HTTP/1.1\r\nHost: localhost\r\n"
              "Content-Length: 30000000\r\n\r\n");
    // All but the last bytes, as long as somebody takes them.
    for (int k = 0; k < 28; ++k) {
      pollfd ready{.fd = sockets.back().get(), .events = POLLIN, .revents = 0};
      if (::poll(&ready, 1, 0) > 0) break;
      send_some(sockets.back().get(), piece);
    }
  }
  for (const auto& socket : sockets) {
    const auto answer = answer_of(socket.get());
    EXPECT_TRUE(answer.empty() || answer.rfind("HTTP/1.1 4", 0) == 0)
        << answer.substr(0, 90);
  }
  expect_unharmed();
}

TEST_F(FloodTest, JsonThatIsDeepOrWide) {
  const auto deep =
      "{\"recipe\": " + std::string(900'000, '[') + std::string(900'000, ']') + "}";
  std::string wide = "{\"recipe\": {";
  for (int i = 0; i < 100'000; ++i) {
    wide += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":1";
  }
  wide += "}}";
  std::string yaml = "{\"recipe\": \"";
  for (int i = 0; i < 100'000; ++i) yaml += "k" + std::to_string(i) + ": 1\\n";
  yaml += "\"}";
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(served_.ask("POST", "/v1/jobs", deep).status, 400);
    EXPECT_EQ(served_.ask("POST", "/v1/jobs", wide).status, 400);
    EXPECT_EQ(served_.ask("POST", "/v1/jobs", yaml).status, 400);
  }
  expect_unharmed();
}

// What is sent to a server from which something is to be had: each is answered clearly
// or cut off, over and over again.
TEST_F(FloodTest, ShapesOfSmugglersAndPathsThatLeadOut) {
  const std::string post = "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\n";
  const std::string get = " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  std::vector<std::string> requests{
      post + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x",
      post + "Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
      post + "Content-Length: 4, 5\r\n\r\nabcde",
      post + "Content-Length: -1\r\n\r\n",
      post + "Content-Length: 99999999999999999999\r\n\r\n",
      post + "Content-Length: 0x4\r\n\r\nabcd",
      post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n",
      post + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
      post + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
      post + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nx",
      post + "Transfer-Encoding: chunked\r\n\r\n-1\r\nx",
      post + " Folded: x\r\n\r\n",
      post + "X: a\rb\r\n\r\n",
      post + std::string("X: a\0b\r\n\r\n", 10),
      post + std::string(200'000, 'a') + ": b\r\n\r\n",
      "GET /" + std::string(200'000, 'a') + get,
      std::string("\x16\x03\x01\x02\x00\x01\x00", 7)};
  for (const auto* way :
       {"..", "%2e%2e", "%252e%252e", "..%2f..%2fetc%2fpasswd", "%2fetc%2fpasswd",
        "..;/", ";x=..", "%00", "a%00b", "..\\..", "%5c..", "//etc/passwd",
        "%c0%ae%c0%ae", "file:%2f%2f%2fetc%2fpasswd", "%zz", "%", "~root"}) {
    for (const auto* before : {"/", "/v1/files/", "/v1/jobs/job-1/checkpoints/1/",
                               "/v1/runs/", "/v1/plans/", "/multigpu/gpu/"}) {
      requests.push_back("GET " + std::string(before) + way + get);
    }
  }
  for (int i = 0; i < 20; ++i) {
    for (const auto& request : requests) {
      const auto socket = connect();
      send_some(socket.get(), request);
      ::shutdown(socket.get(), SHUT_WR);
      const auto answer = answer_of(socket.get());
      EXPECT_TRUE(answer.empty() || answer.rfind("HTTP/1.1 4", 0) == 0)
          << request.substr(0, 90) << "\n"
          << answer.substr(0, 90);
      EXPECT_EQ(answer.find("root:"), std::string::npos) << request.substr(0, 90);
    }
  }
  expect_unharmed();
}

}  // namespace
}  // namespace lockstep::server
