#include "lockstep/monitor/detail/text_server.h"

#include <array>
#include <cstring>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/port_holder.h"
#include "lockstep/base/str.h"

namespace lockstep::monitor::detail {
namespace {

files::Descriptor listen_at(const std::string& address, int port) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.c_str(), str(port).c_str(), &wanted, &found) != 0) {
    throw Error(Fault::io, "prometheus: '", address,
                "' is not an IP address; set monitor.prometheus_address");
  }
  files::Descriptor socket(
      ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int yes = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const bool bound = ::bind(socket.get(), found->ai_addr, found->ai_addrlen) == 0 &&
                     ::listen(socket.get(), 16) == 0;
  const int error = errno;
  ::freeaddrinfo(found);
  if (!bound) {
    const auto why = error == EADDRINUSE ? "it is taken by " + describe_holder(port)
                                         : std::string(::strerror(error));
    throw Error(Fault::io, "prometheus: port ", port, " of ", address,
                " cannot be had: ", why, "; set monitor.prometheus_port to a free one");
  }
  return socket;
}

int port_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  return address.ss_family == AF_INET6
             ? ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port)
             : ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

// Returns the head of a request, or a part of it: a client has a second and 8 KiB.
std::string read_head(int connection) {
  std::string head;
  std::array<char, 2048> part{};
  while (head.find("\r\n\r\n") == std::string::npos && head.size() < 8192) {
    pollfd waiting{.fd = connection, .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, 1000) <= 0) break;
    const auto count = ::recv(connection, part.data(), part.size(), 0);
    if (count <= 0) break;
    head.append(part.data(), static_cast<std::size_t>(count));
  }
  return head;
}

void send_all(int connection, std::string_view bytes) {
  while (!bytes.empty()) {
    pollfd waiting{.fd = connection, .events = POLLOUT, .revents = 0};
    if (::poll(&waiting, 1, 1000) <= 0) return;
    const auto count = ::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

std::string response(std::string_view status, std::string_view body) {
  return str("HTTP/1.1 ", status,
             "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
             "Content-Length: ",
             body.size(), "\r\nConnection: close\r\n\r\n", body);
}

}  // namespace

TextServer::TextServer(const std::string& address, int port,
                       std::function<std::string()> text)
    : text_(std::move(text)),
      socket_(listen_at(address, port)),
      wake_(::eventfd(0, EFD_CLOEXEC)),
      port_(port_of(socket_.get())),
      thread_([this](const std::stop_token& stop) { serve(stop); }) {}

TextServer::~TextServer() {
  thread_.request_stop();
  const std::uint64_t one = 1;
  static_cast<void>(::write(wake_.get(), &one, sizeof one));
}

void TextServer::serve(const std::stop_token& stop) {
  sigset_t all;  // signals are for the threads that wait for them
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
  while (!stop.stop_requested()) {
    std::array<pollfd, 2> waiting{
        pollfd{.fd = socket_.get(), .events = POLLIN, .revents = 0},
        pollfd{.fd = wake_.get(), .events = POLLIN, .revents = 0}};
    if (::poll(waiting.data(), waiting.size(), -1) < 0 || waiting[1].revents != 0) {
      continue;
    }
    const files::Descriptor connection(
        ::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection) answer(connection.get());
  }
}

void TextServer::answer(int connection) const {
  const auto head = read_head(connection);
  const auto line = std::string_view(head).substr(0, head.find("\r\n"));
  const bool head_only = line.starts_with("HEAD ");
  if (!line.starts_with("GET ") && !head_only) {
    return send_all(connection, response("405 Method Not Allowed", "only GET\n"));
  }
  const auto path = line.substr(line.find(' ') + 1);
  if (!path.starts_with("/metrics ") && !path.starts_with("/metrics?")) {
    return send_all(connection, response("404 Not Found", "see /metrics\n"));
  }
  auto whole = response("200 OK", text_());
  if (head_only) whole.resize(whole.find("\r\n\r\n") + 4);
  send_all(connection, whole);
}

}  // namespace lockstep::monitor::detail
