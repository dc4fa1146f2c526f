// The HTTP engine: Boost.Beast over Asio. Connections are state machines on a few
// threads; each is one thread's from its beginning to its end.
#include <mutex>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/server/detail/beast_session.h"

namespace lockstep::server {
namespace {

std::shared_ptr<ssl::context> tls_of(const ServerOptions& options) {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  try {
    context->set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 |
                         ssl::context::no_sslv3 | ssl::context::no_tlsv1 |
                         ssl::context::no_tlsv1_1);
    context->use_certificate_chain_file(options.certificate);
    context->use_private_key_file(options.key, ssl::context::pem);
  } catch (const boost::system::system_error& error) {
    throw Error(Fault::config, "http.certificate and http.key cannot be used: ",
                error.code().message());
  }
  return context;
}

// A thread that answers, and what it has to do.
struct Lane {
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{
      context.get_executor()};
  std::jthread thread;
};

class BeastServer : public HttpServer {
 public:
  BeastServer(const ServerOptions& options, Handler& handler)
      : shared_{.handler = handler, .options = options, .waiting = waiting_},
        lanes_(static_cast<std::size_t>(options.threads)),
        waiting_(static_cast<std::size_t>(options.threads)),
        acceptor_(lanes_.front().context) {
    shared_.on_close = [this] { resume_accepting(); };
    if (!options.certificate.empty()) tls_ = tls_of(options);
    listen();
  }

  ~BeastServer() override { stop(); }

  int port() const override { return acceptor_.local_endpoint().port(); }
  int connections() const override { return shared_.connections; }

  void start() override {
    accept();
    for (auto& lane : lanes_) {
      lane.thread = std::jthread([&lane] { lane.context.run(); });
    }
  }

  void stop() override {
    if (shared_.stopping.exchange(true)) return;
    asio::post(acceptor_.get_executor(), [this] {
      error_code ignored;
      acceptor_.close(ignored);
    });
    // Requests that are being answered get a moment; idle connections do not count.
    constexpr std::chrono::milliseconds kLast{500};
    std::this_thread::sleep_for(kLast);
    waiting_.join();
    for (auto& lane : lanes_) lane.context.stop();
    for (auto& lane : lanes_) {
      if (lane.thread.joinable()) lane.thread.join();
    }
  }

  void reload_certificate() override {
    if (shared_.options.certificate.empty()) return;
    auto fresh = tls_of(shared_.options);
    const std::lock_guard lock(mutex_);
    tls_ = std::move(fresh);
  }

 private:
  void listen() {
    const auto& options = shared_.options;
    try {
      const auto address = asio::ip::make_address(
          options.address == "localhost" ? "127.0.0.1" : options.address);
      const tcp::endpoint endpoint(address, static_cast<unsigned short>(options.port));
      acceptor_.open(endpoint.protocol());
      acceptor_.set_option(asio::socket_base::reuse_address(true));
      acceptor_.bind(endpoint);
      acceptor_.listen(asio::socket_base::max_listen_connections);
    } catch (const boost::system::system_error& error) {
      throw Error(Fault::config, "http.address=", options.address,
                  " http.port=", options.port, ": ", error.code().message());
    }
  }

  void accept() {
    auto& lane = lanes_[next_lane_++ % lanes_.size()];
    acceptor_.async_accept(lane.context, [this](error_code error, Socket socket) {
      if (error == asio::error::operation_aborted || shared_.stopping) return;
      if (!error) begin(std::move(socket));
      // Out of descriptors, say: others may close theirs.
      const bool full = shared_.connections >= shared_.options.max_connections;
      if (!error && !full) return accept();
      paused_ = true;
      if (error) resume_later();
    });
  }

  void resume_later() {
    constexpr std::chrono::milliseconds kMoment{100};
    auto timer =
        std::make_shared<asio::steady_timer>(acceptor_.get_executor(), kMoment);
    timer->async_wait([this, timer](error_code) { resume_accepting(); });
  }

  void resume_accepting() {
    if (shared_.stopping || !paused_) return;
    asio::post(acceptor_.get_executor(), [this] {
      if (shared_.connections >= shared_.options.max_connections) return;
      if (paused_.exchange(false)) accept();
    });
  }

  void begin(Socket socket) {
    error_code ignored;
    const auto peer = socket.remote_endpoint(ignored).address().to_string(ignored);
    socket.set_option(tcp::no_delay(true), ignored);
    std::shared_ptr<ssl::context> tls;
    {
      const std::lock_guard lock(mutex_);
      tls = tls_;
    }
    if (!tls) {
      std::make_shared<Session<Socket>>(std::move(socket), shared_, peer)->start();
      return;
    }
    std::make_shared<Session<beast::ssl_stream<Socket>>>(
        beast::ssl_stream<Socket>(std::move(socket), *tls), shared_, peer)
        ->start();
  }

  Shared shared_;
  std::vector<Lane> lanes_;
  asio::thread_pool waiting_;  // goes before the lanes whose connections it may hold
  asio::basic_socket_acceptor<tcp, asio::io_context::executor_type> acceptor_;
  std::size_t next_lane_ = 0;  // of the acceptor's thread
  std::atomic<bool> paused_{false};
  std::mutex mutex_;  // guards tls_
  std::shared_ptr<ssl::context> tls_;
};

}  // namespace

std::unique_ptr<HttpServer> make_http_server(const ServerOptions& options,
                                             Handler& handler) {
  return std::make_unique<BeastServer>(options, handler);
}

std::optional<Response> Handler::refuse_sender(const Request&) {
  return std::nullopt;
}

std::string_view Request::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return "";
}

}  // namespace lockstep::server
