#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>

#include "lockstep/base/text.h"
#include "lockstep/server/http.h"

// One connection of the engine. Only for beast_server.cpp: the headers above take a
// minute to compile.
namespace lockstep::server {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace beast_http = boost::beast::http;
namespace ssl = boost::asio::ssl;
using boost::asio::ip::tcp;
using boost::system::error_code;

inline constexpr std::chrono::milliseconds kQuiet{
    200};  // between looks at a quiet stream
inline constexpr std::chrono::seconds kPingEvery{15};
inline constexpr std::size_t kFirstRead = 4096;

// What all connections share.
struct Shared {
  Handler& handler;
  ServerOptions options;
  std::atomic<int> connections{0};
  std::atomic<bool> stopping{false};
  std::function<void()> on_close;  // one more may be accepted

  std::chrono::milliseconds idle() const {
    return std::chrono::milliseconds(options.idle_ms);
  }
  std::chrono::milliseconds patience() const {
    return std::chrono::milliseconds(options.request_ms);
  }
};

inline std::string text_of(beast::string_view view) {
  return {view.data(), view.size()};
}

template <typename Layer>
class Session : public std::enable_shared_from_this<Session<Layer>> {
 public:
  Session(Layer layer, Shared& shared, std::string peer)
      : layer_(std::move(layer)),
        shared_(shared),
        peer_(std::move(peer)),
        timer_(layer_.get_executor()) {
    ++shared_.connections;
  }

  ~Session() {
    if (on_end_) on_end_();
    --shared_.connections;
    shared_.on_close();
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void start() {
    asio::dispatch(layer_.get_executor(),
                   [self = this->shared_from_this()] { self->begin(); });
  }

 private:
  using Parser = beast_http::request_parser<beast_http::string_body>;

  void begin() {
    if constexpr (std::is_same_v<Layer, beast::tcp_stream>) {
      wait_for_request();
    } else {
      bottom().expires_after(shared_.patience());
      layer_.async_handshake(ssl::stream_base::server,
                             [self = this->shared_from_this()](error_code error) {
                               if (!error) self->wait_for_request();
                             });
    }
  }

  beast::tcp_stream& bottom() { return beast::get_lowest_layer(layer_); }

  // The first bytes may take as long as a connection may be idle; the rest of the
  // request may not.
  void wait_for_request() {
    if (buffer_.size() > 0) return read_header();
    bottom().expires_after(shared_.idle());
    layer_.async_read_some(
        buffer_.prepare(kFirstRead),
        [self = this->shared_from_this()](error_code error, std::size_t size) {
          if (error) return self->close();
          self->buffer_.commit(size);
          self->read_header();
        });
  }

  void read_header() {
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(shared_.options.header_bytes));
    // Known when the route is; until then no byte of it is read. (Not boost::none,
    // which Boost 1.74 takes for a limit of nothing.)
    parser_->body_limit(std::numeric_limits<std::uint64_t>::max());
    bottom().expires_after(shared_.patience());
    beast_http::async_read_header(
        layer_, buffer_, *parser_,
        [self = this->shared_from_this()](error_code error, std::size_t) {
          self->got_header(error);
        });
  }

  void got_header(error_code error) {
    if (error) return refuse_malformed(error);
    const auto& message = parser_->get();
    // Two lengths are how requests are smuggled past a proxy.
    if (message.count(beast_http::field::content_length) > 1 ||
        message.count(beast_http::field::transfer_encoding) > 1 ||
        (message.count(beast_http::field::content_length) > 0 &&
         message.count(beast_http::field::transfer_encoding) > 0)) {
      return answer_last(shared_.handler.refuse(400, "the length is said twice"));
    }
    const auto encoding = message[beast_http::field::transfer_encoding];
    if (!encoding.empty() && !beast::iequals(encoding, "chunked")) {
      return answer_last(
          shared_.handler.refuse(400, "Transfer-Encoding is not chunked"));
    }
    const auto limit = static_cast<std::uint64_t>(shared_.handler.body_limit(
        text_of(message.method_string()), text_of(message.target())));
    const auto length = parser_->content_length();
    if (length && *length > limit) {
      return answer_last(shared_.handler.refuse(413, "the body is too large"));
    }
    parser_->body_limit(limit);
    if (beast::iequals(message[beast_http::field::expect], "100-continue")) {
      return say_continue();
    }
    read_body();
  }

  void say_continue() {
    static const std::string kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    asio::async_write(layer_, asio::buffer(kContinue),
                      [self = this->shared_from_this()](error_code error, std::size_t) {
                        if (!error) self->read_body();
                      });
  }

  void read_body() {
    if (parser_->is_done()) return answer();
    beast_http::async_read(
        layer_, buffer_, *parser_,
        [self = this->shared_from_this()](error_code error, std::size_t) {
          if (error == beast_http::error::body_limit) {
            return self->answer_last(
                self->shared_.handler.refuse(413, "the body is too large"));
          }
          if (error) return self->refuse_malformed(error);
          self->answer();
        });
  }

  void refuse_malformed(error_code error) {
    if (error == beast_http::error::end_of_stream) return close();
    if (error == beast_http::error::header_limit) {
      return answer_last(shared_.handler.refuse(431, "the headers are too large"));
    }
    if (error == beast::error::timeout) {
      // The time is over: there is none for an answer, either.
      return close();
    }
    if (error.category() ==
        beast_http::make_error_code(beast_http::error::bad_method).category()) {
      return answer_last(shared_.handler.refuse(400, "this is no HTTP request"));
    }
    close();
  }

  void answer() {
    Request request;
    auto message = parser_->release();
    request.method = text_of(message.method_string());
    request.target = text_of(message.target());
    request.peer = peer_;
    for (const auto& field : message) {
      request.headers.emplace_back(text::lower(text_of(field.name_string())),
                                   text_of(field.value()));
    }
    request.body = std::move(message.body());
    keep_alive_ = message.keep_alive() && !shared_.stopping;
    is_head_ = message.method() == beast_http::verb::head;
    write(shared_.handler.handle(request));
  }

  void answer_last(Response response) {
    keep_alive_ = false;
    is_head_ = false;
    lingers_ = true;
    write(std::move(response));
  }

  template <typename Message>
  void fill(Message& message, const Response& response) {
    message.version(11);
    message.result(static_cast<unsigned>(response.status));
    message.set(beast_http::field::content_type, response.type);
    message.set(beast_http::field::cache_control, "no-store");
    message.set("X-Content-Type-Options", "nosniff");
    for (const auto& [name, value] : response.headers) message.set(name, value);
    message.keep_alive(keep_alive_);
  }

  void write(Response response) {
    on_end_ = std::move(response.on_end);
    if (response.stream) return begin_stream(std::move(response));
    message_.emplace();
    fill(*message_, response);
    message_->body() = std::move(response.body);
    message_->prepare_payload();
    if (is_head_) message_->body().clear();
    bottom().expires_after(shared_.patience());
    beast_http::async_write(
        layer_, *message_,
        [self = this->shared_from_this()](error_code error, std::size_t) {
          self->written(error);
        });
  }

  void written(error_code error) {
    message_.reset();
    if (error || !keep_alive_) return close();
    wait_for_request();
  }

  void begin_stream(Response response) {
    keep_alive_ = false;
    stream_ = std::move(response.stream);
    empty_.emplace();
    fill(*empty_, response);
    empty_->chunked(true);
    serializer_.emplace(*empty_);
    last_piece_ = std::chrono::steady_clock::now();
    bottom().expires_after(shared_.patience());
    beast_http::async_write_header(
        layer_, *serializer_,
        [self = this->shared_from_this()](error_code error, std::size_t) {
          if (!error) self->next_piece();
        });
  }

  void next_piece() {
    if (shared_.stopping) return end_stream();
    piece_ = stream_->next();
    if (piece_.empty() && stream_->is_over()) return end_stream();
    const auto now = std::chrono::steady_clock::now();
    if (piece_.empty() && now - last_piece_ > kPingEvery) piece_ = stream_->ping();
    if (piece_.empty()) {
      bottom().expires_never();
      timer_.expires_after(kQuiet);
      return timer_.async_wait([self = this->shared_from_this()](error_code error) {
        if (!error) self->next_piece();
      });
    }
    last_piece_ = now;
    bottom().expires_after(shared_.patience());
    asio::async_write(layer_, beast_http::make_chunk(asio::buffer(piece_)),
                      [self = this->shared_from_this()](error_code error, std::size_t) {
                        if (!error) self->next_piece();
                      });
  }

  void end_stream() {
    bottom().expires_after(shared_.patience());
    asio::async_write(
        layer_, beast_http::make_chunk_last(),
        [self = this->shared_from_this()](error_code, std::size_t) { self->close(); });
  }

  void close() {
    error_code ignored;
    bottom().socket().shutdown(tcp::socket::shutdown_send, ignored);
    if (lingers_) drain();
  }

  // What a refused client still sends is read for a moment: closing over it would reset
  // the connection before the client has read why.
  void drain() {
    constexpr std::chrono::seconds kMoment{2};
    constexpr std::size_t kMost = 4 << 20;
    if (drained_ == 0) bottom().expires_after(kMoment);
    buffer_.clear();
    bottom().async_read_some(
        buffer_.prepare(16 << 10),
        [self = this->shared_from_this()](error_code error, std::size_t size) {
          self->drained_ += size;
          if (!error && self->drained_ < kMost) self->drain();
        });
  }

  Layer layer_;
  Shared& shared_;
  const std::string peer_;
  asio::steady_timer timer_;
  beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  std::optional<beast_http::response<beast_http::string_body>> message_;
  std::optional<beast_http::response<beast_http::empty_body>> empty_;
  std::optional<beast_http::response_serializer<beast_http::empty_body>> serializer_;
  std::unique_ptr<Stream> stream_;
  std::function<void()> on_end_;
  std::string piece_;
  std::chrono::steady_clock::time_point last_piece_;
  bool keep_alive_ = true;
  bool is_head_ = false;
  bool lingers_ = false;
  std::size_t drained_ = 0;
};

}  // namespace lockstep::server
