#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/dispatch.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>

#include "lockstep/base/text.h"
#include "lockstep/server/detail/beast_shared.h"
#include "lockstep/server/http.h"

// One connection of the engine. Only for beast_server.cpp: the headers above take a
// minute to compile.
//
// A connection belongs to one thread, which has an io_context of its own: what it does
// needs no lock. What may wait for a disk is answered by another thread.
namespace lockstep::server {

namespace beast = boost::beast;
namespace beast_http = boost::beast::http;
namespace ssl = boost::asio::ssl;
using boost::asio::ip::tcp;
using boost::system::error_code;
using Socket = asio::basic_stream_socket<tcp, asio::io_context::executor_type>;

inline constexpr std::chrono::milliseconds kQuiet{
    200};  // between looks at a quiet stream
inline constexpr std::chrono::seconds kPingEvery{15};
inline constexpr std::size_t kFirstRead = 4096;
// What is read of a body at a time stands beside what may be as long as headers: what a
// chunk says of itself, and the fields behind the last one.
inline constexpr std::size_t kBodyRead = 64 << 10;

inline std::string text_of(beast::string_view view) {
  return {view.data(), view.size()};
}

inline void append(std::string& text, std::initializer_list<std::string_view> parts) {
  for (const auto part : parts) text += part;
}

template <typename Layer>
class Session : public std::enable_shared_from_this<Session<Layer>> {
 public:
  Session(Layer layer, Shared& shared, std::string peer)
      : layer_(std::move(layer)),
        shared_(shared),
        peer_(std::move(peer)),
        quiet_(layer_.get_executor()),
        watch_(layer_.get_executor()),
        buffer_(static_cast<std::size_t>(shared.options.header_bytes) + kBodyRead) {
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
  using Time = std::chrono::steady_clock::time_point;

  void begin() {
    if constexpr (std::is_same_v<Layer, Socket>) {
      wait_for_request();
    } else {
      expires_after(shared_.patience());
      layer_.async_handshake(ssl::stream_base::server,
                             [self = this->shared_from_this()](error_code error) {
                               if (!error) self->wait_for_request();
                             });
    }
  }

  Socket& bottom() { return beast::get_lowest_layer(layer_); }

  // What is under way has to end until then. The timer is not touched as long as it
  // fires early enough: it looks then whether the time has been moved.
  void expires_after(std::chrono::milliseconds time) {
    deadline_ = std::chrono::steady_clock::now() + time;
    if (deadline_ < watched_until_) watch();
  }

  void expires_never() { deadline_ = Time::max(); }

  void watch() {
    watched_until_ = deadline_;
    watch_.expires_at(deadline_);
    watch_.async_wait([weak = this->weak_from_this()](error_code error) {
      const auto self = weak.lock();
      if (error || !self) return;
      self->watched_until_ = Time::max();
      if (std::chrono::steady_clock::now() >= self->deadline_) {
        error_code ignored;
        self->bottom().close(ignored);
      } else if (self->deadline_ != Time::max()) {
        self->watch();
      }
    });
  }

  // The first bytes may take as long as a connection may be idle; the rest of the
  // request may not.
  void wait_for_request() {
    if (buffer_.size() > 0) return read_header();
    expires_after(shared_.idle());
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
    expires_after(shared_.patience());
    // Nearly always all of it is here already.
    error_code error;
    buffer_.consume(parser_->put(buffer_.data(), error));
    if (error != beast_http::error::need_more) return got_header(error);
    beast_http::async_read_header(
        layer_, buffer_, *parser_,
        [self = this->shared_from_this()](error_code failed, std::size_t) {
          self->got_header(failed);
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
    if (!parser_->is_done()) {
      auto refused = shared_.handler.refuse_sender(head_of(message));
      if (refused) return answer_last(std::move(*refused));
    }
    const auto method = message.method_string();
    const auto target = message.target();
    const auto expected = shared_.handler.expect({method.data(), method.size()},
                                                 {target.data(), target.size()});
    waits_ = expected.waits;
    expect_body(expected.body_bytes);
  }

  void expect_body(std::int64_t most) {
    const auto limit = static_cast<std::uint64_t>(most);
    const auto length = parser_->content_length();
    if (length && *length > limit) {
      return answer_last(shared_.handler.refuse(413, "the body is too large"));
    }
    parser_->body_limit(limit);
    const auto bytes = length ? static_cast<std::int64_t>(*length) : most;
    // A small one is read while large ones of others take all the room.
    if (!parser_->is_done() && bytes > static_cast<std::int64_t>(kBodyRead)) {
      share_ = BodyShare::take(shared_, bytes);
      if (!share_) {
        return answer_last(shared_.handler.refuse(
            503, "too many bodies are on their way; try again in a moment"));
      }
    }
    const auto& message = parser_->get();
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
    if (error == beast_http::error::header_limit ||
        error == beast_http::error::buffer_overflow) {
      return answer_last(shared_.handler.refuse(431, "the headers are too large"));
    }
    if (error.category() ==
        beast_http::make_error_code(beast_http::error::bad_method).category()) {
      return answer_last(shared_.handler.refuse(400, "this is no HTTP request"));
    }
    // The time is over, or the client is gone: there is nobody for an answer.
    close();
  }

  // All but the body.
  template <typename Message>
  Request head_of(const Message& message) const {
    Request request;
    request.method = text_of(message.method_string());
    request.target = text_of(message.target());
    request.peer = peer_;
    for (const auto& field : message) {
      request.headers.emplace_back(text::lower(text_of(field.name_string())),
                                   text_of(field.value()));
    }
    return request;
  }

  Request take_request() {
    auto message = parser_->release();
    auto request = head_of(message);
    request.body = std::move(message.body());
    keep_alive_ = message.keep_alive() && !shared_.stopping;
    is_head_ = message.method() == beast_http::verb::head;
    return request;
  }

  void answer() {
    auto request = take_request();
    if (!waits_) return write(shared_.handler.handle(request));
    // No byte is waited for meanwhile, so nothing can be late.
    expires_never();
    asio::post(shared_.waiting, [self = this->shared_from_this(),
                                 request = std::move(request)] {
      auto response = std::make_shared<Response>(self->shared_.handler.handle(request));
      asio::post(self->layer_.get_executor(),
                 [self, response] { self->write(std::move(*response)); });
    });
  }

  void answer_last(Response response) {
    keep_alive_ = false;
    is_head_ = false;
    lingers_ = true;
    write(std::move(response));
  }

  void write_head(const Response& response, bool is_chunked) {
    const auto reason =
        beast_http::obsolete_reason(static_cast<beast_http::status>(response.status));
    head_.clear();
    append(head_,
           {"HTTP/1.1 ", std::to_string(response.status), " ",
            std::string_view(reason.data(), reason.size()),
            "\r\nContent-Type: ", response.type,
            "\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"});
    for (const auto& [name, value] : response.headers) {
      append(head_, {name, ": ", value, "\r\n"});
    }
    if (!keep_alive_) head_ += "Connection: close\r\n";
    if (is_chunked) {
      head_ += "Transfer-Encoding: chunked\r\n\r\n";
    } else {
      append(head_,
             {"Content-Length: ", std::to_string(response.body.size()), "\r\n\r\n"});
    }
  }

  void write(Response response) {
    on_end_ = std::move(response.on_end);
    expires_after(shared_.patience());
    if (response.stream) return begin_stream(std::move(response));
    write_head(response, /*is_chunked=*/false);
    body_ = is_head_ ? std::string() : std::move(response.body);
    const std::array<asio::const_buffer, 2> parts{asio::buffer(head_),
                                                  asio::buffer(body_)};
    asio::async_write(layer_, parts,
                      [self = this->shared_from_this()](error_code error, std::size_t) {
                        self->written(error);
                      });
  }

  void written(error_code error) {
    body_ = {};
    share_.reset();
    if (error || !keep_alive_) return close();
    wait_for_request();
  }

  void begin_stream(Response response) {
    keep_alive_ = false;
    stream_ = std::move(response.stream);
    write_head(response, /*is_chunked=*/true);
    last_piece_ = std::chrono::steady_clock::now();
    asio::async_write(layer_, asio::buffer(head_),
                      [self = this->shared_from_this()](error_code error, std::size_t) {
                        if (error) return;
                        if (self->is_head_) return self->close();
                        self->next_piece();
                      });
  }

  void next_piece() {
    if (shared_.stopping) return end_stream();
    piece_ = stream_->next();
    if (piece_.empty() && stream_->is_over()) return end_stream();
    const auto now = std::chrono::steady_clock::now();
    if (piece_.empty() && now - last_piece_ > kPingEvery) piece_ = stream_->ping();
    if (piece_.empty()) {
      expires_never();
      quiet_.expires_after(kQuiet);
      return quiet_.async_wait([self = this->shared_from_this()](error_code error) {
        if (!error) self->next_piece();
      });
    }
    last_piece_ = now;
    expires_after(shared_.patience());
    asio::async_write(layer_, beast_http::make_chunk(asio::buffer(piece_)),
                      [self = this->shared_from_this()](error_code error, std::size_t) {
                        if (!error) self->next_piece();
                      });
  }

  void end_stream() {
    expires_after(shared_.patience());
    asio::async_write(
        layer_, beast_http::make_chunk_last(),
        [self = this->shared_from_this()](error_code, std::size_t) { self->close(); });
  }

  void close() {
    error_code ignored;
    bottom().shutdown(tcp::socket::shutdown_send, ignored);
    if (lingers_) drain();
  }

  // What a refused client still sends is read for a moment: closing over it would reset
  // the connection before the client has read why.
  void drain() {
    constexpr std::chrono::seconds kMoment{2};
    constexpr std::size_t kMost = 4 << 20;
    if (drained_ == 0) expires_after(kMoment);
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
  asio::steady_timer quiet_;  // until the next look at a stream
  asio::steady_timer watch_;
  Time deadline_ = Time::max();
  Time watched_until_ = Time::max();  // when watch_ fires; never if it is not set
  beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  std::optional<BodyShare> share_;  // of the body that is read or answered
  std::string head_, body_;         // of the answer that is being written
  std::unique_ptr<Stream> stream_;
  std::function<void()> on_end_;
  std::string piece_;
  Time last_piece_;
  bool keep_alive_ = true;
  bool is_head_ = false;
  bool lingers_ = false;
  bool waits_ = false;
  std::size_t drained_ = 0;
};

}  // namespace lockstep::server
