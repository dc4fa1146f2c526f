#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// HTTP as the rest of the server sees it; beast_server.cpp and beast_client.cpp are the
// only sources that know the engine.
namespace lockstep::server {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method;
  std::string target;  // as sent: path and query
  Headers headers;     // names in lower case
  std::string body;
  std::string peer;  // the address that it came from

  // Takes a name in lower case; returns "" if there is none.
  std::string_view header(std::string_view name) const;
};

// An answer that is not known as a whole when it begins: events, or a large file.
class Stream {
 public:
  virtual ~Stream() = default;

  // Returns what is there now; "" if nothing is. Called by one thread at a time, again
  // at once after a piece, else after a moment.
  virtual std::string next() = 0;
  virtual bool is_over() const = 0;

  // Returns what keeps a quiet connection alive; "" if nothing may be added.
  virtual std::string ping() const { return ""; }
};

struct Response {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  Headers headers = {};
  std::unique_ptr<Stream> stream = {};  // in place of the body
  // Called when a stream has ended, however that happened. May be empty.
  std::function<void()> on_end = {};
};

// What is known of a request before its body is read.
struct AwaitedRequest {
  std::int64_t body_bytes = 0;  // at most
  // The answer may have to wait for a disk or another program: others are not to wait
  // for it.
  bool waits = false;
};

// What the engine asks.
//
// Threads: any.
class Handler {
 public:
  virtual ~Handler() = default;

  virtual AwaitedRequest expect(std::string_view method, std::string_view target) = 0;

  // Returns the answer to a request of somebody who may not send one, before its body
  // is read: who is nobody gets no memory. Nothing, as here: it is read, and handled.
  // Never throws.
  virtual std::optional<Response> refuse_sender(const Request& head);

  // Never throws.
  virtual Response handle(const Request& request) = 0;

  // Returns the answer to a request that is no HTTP, or beyond a limit.
  virtual Response refuse(int status, std::string_view why) = 0;
};

struct ServerOptions {
  std::string address = "127.0.0.1";
  int port = 0;
  std::string certificate;  // PEM files; "": no TLS
  std::string key;
  int threads = 2;
  int max_connections = 2048;
  std::int64_t header_bytes = 16 << 10;
  std::int64_t bodies_bytes = 256 << 20;
  std::int64_t idle_ms = 75'000;
  std::int64_t request_ms = 20'000;
};

// Serves until it is stopped. Connections have no threads of their own.
class HttpServer {
 public:
  virtual ~HttpServer() = default;

  virtual int port() const = 0;
  virtual void start() = 0;
  // Answers what is under way, and ends.
  virtual void stop() = 0;
  // Reads certificate and key again, for connections from now on. Throws Fault::config
  // if they can not be used; the old ones stay then.
  virtual void reload_certificate() = 0;
  virtual int connections() const = 0;
};

// Listens from the first moment on. Throws Fault::config if the port is taken or a
// certificate can not be used.
std::unique_ptr<HttpServer> make_http_server(const ServerOptions& options,
                                             Handler& handler);

struct ClientOptions {
  std::string url;        // "http://127.0.0.1:8477", "https://host"
  std::string authority;  // PEM file of further authorities; "": those of the system
  // Longest time without a byte.
  std::chrono::milliseconds patience{60'000};
  std::stop_token stop = {};  // gives up when it is asked to stop
};

// One request. Throws Fault::io if there is no answer. `on_piece` gets the body of a
// stream as it comes and ends it by returning false; without it the body is returned.
struct Answer {
  int status = 0;
  std::string type;
  std::string body;
};
Answer send_request(const ClientOptions& options, const Request& request,
                    const std::function<bool(std::string_view)>& on_piece = {});

}  // namespace lockstep::server
