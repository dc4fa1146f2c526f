// The client side of the engine: one request at a time, for commands and webhooks.
#include <limits>

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/server/http.h"

namespace lockstep::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace beast_http = boost::beast::http;
namespace ssl = boost::asio::ssl;
using boost::asio::ip::tcp;
using boost::system::error_code;

struct Address {
  bool tls = false;
  std::string host;
  std::string port;
};

Address address_of(const std::string& url) {
  Address address;
  std::string rest;
  if (text::starts_with(url, "https://")) {
    address.tls = true;
    rest = url.substr(8);
  } else if (text::starts_with(url, "http://")) {
    rest = url.substr(7);
  } else {
    throw Error(Fault::config, "server: '", url,
                "' is not an address; write http://HOST:PORT or https://HOST");
  }
  rest = rest.substr(0, rest.find('/'));
  const auto colon = rest.rfind(':');
  address.host = rest.substr(0, colon);
  address.port = colon == std::string::npos ? (address.tls ? "443" : "80")
                                            : rest.substr(colon + 1);
  return address;
}

beast_http::request<beast_http::string_body> message_of(const Request& request,
                                                        const Address& address) {
  beast_http::request<beast_http::string_body> message;
  message.version(11);
  message.method_string(request.method);
  message.target(request.target);
  message.set(beast_http::field::host, address.host + ":" + address.port);
  for (const auto& [name, value] : request.headers) message.set(name, value);
  message.body() = request.body;
  message.prepare_payload();
  message.keep_alive(false);
  return message;
}

// Asynchronous operations one after the other: the others know no time limit.
class Operations {
 public:
  explicit Operations(const ClientOptions& options)
      : options_(options), on_stop_(options.stop, Stop{context_}) {}

  asio::io_context& context() noexcept { return context_; }

  // Calls `begin` with a handler, and returns when that was called.
  template <typename Begin>
  error_code wait(beast::tcp_stream& stream, const Begin& begin) {
    error_code result = asio::error::operation_aborted;
    stream.expires_after(options_.patience);
    context_.restart();
    if (options_.stop.stop_requested()) return result;
    begin([&result](error_code error, auto&&...) { result = error; });
    context_.run();
    return result;
  }

 private:
  struct Stop {
    asio::io_context& context;
    void operator()() const { context.stop(); }
  };

  const ClientOptions& options_;
  asio::io_context context_;
  std::stop_callback<Stop> on_stop_;
};

void check(error_code error) {
  if (error) throw beast::system_error(error);
}

// A request on its way.
struct Outgoing {
  beast_http::request<beast_http::string_body> message;
  const std::function<bool(std::string_view)>& on_piece;
};

template <typename Layer>
Answer exchange(Layer& layer, Operations& operations, const Outgoing& outgoing) {
  const auto& [message, on_piece] = outgoing;
  auto& stream = beast::get_lowest_layer(layer);
  check(operations.wait(stream, [&, &sent = message](auto done) {
    beast_http::async_write(layer, sent, done);
  }));
  beast::flat_buffer buffer;
  beast_http::response_parser<beast_http::buffer_body> parser;
  parser.body_limit(std::numeric_limits<std::uint64_t>::max());
  check(operations.wait(stream, [&](auto done) {
    beast_http::async_read_header(layer, buffer, parser, done);
  }));
  Answer answer;
  answer.status = static_cast<int>(parser.get().result_int());
  const auto type = parser.get()[beast_http::field::content_type];
  answer.type = std::string(type.data(), type.size());
  std::string piece(64 << 10, '\0');
  while (!parser.is_done()) {
    parser.get().body().data = piece.data();
    parser.get().body().size = piece.size();
    const auto error = operations.wait(stream, [&](auto done) {
      beast_http::async_read_some(layer, buffer, parser, done);
    });
    if (error != beast_http::error::need_buffer) check(error);
    const auto got = piece.size() - parser.get().body().size;
    const std::string_view bytes(piece.data(), got);
    if (on_piece && answer.status < 400) {
      if (got > 0 && !on_piece(bytes)) break;
    } else {
      answer.body += bytes;
    }
  }
  return answer;
}

}  // namespace

Answer send_request(const ClientOptions& options, const Request& request,
                    const std::function<bool(std::string_view)>& on_piece) {
  const auto address = address_of(options.url);
  const Outgoing outgoing{message_of(request, address), on_piece};
  try {
    Operations operations(options);
    tcp::resolver resolver(operations.context());
    const auto places = resolver.resolve(address.host, address.port);
    beast::tcp_stream stream(operations.context());
    check(operations.wait(stream,
                          [&](auto done) { stream.async_connect(places, done); }));
    if (!address.tls) return exchange(stream, operations, outgoing);
    ssl::context tls(ssl::context::tls_client);
    tls.set_default_verify_paths();
    if (!options.authority.empty()) tls.load_verify_file(options.authority);
    tls.set_verify_mode(ssl::verify_peer);
    beast::ssl_stream<beast::tcp_stream> secure(std::move(stream), tls);
    secure.set_verify_callback(ssl::host_name_verification(address.host));
    SSL_set_tlsext_host_name(secure.native_handle(), address.host.c_str());
    check(operations.wait(beast::get_lowest_layer(secure), [&](auto done) {
      secure.async_handshake(ssl::stream_base::client, done);
    }));
    return exchange(secure, operations, outgoing);
  } catch (const boost::system::system_error& error) {
    throw Error(Fault::io, "server: no answer from ", options.url, ": ",
                error.code().message(),
                "; is `lockstep serve` running there? (--server, LOCKSTEP_SERVER)");
  }
}

}  // namespace lockstep::server
