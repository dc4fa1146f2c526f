#include "lockstep/launcher/detail/console_queue.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

#include <poll.h>
#include <signal.h>
#include <unistd.h>

namespace lockstep::launcher::detail {
namespace {

constexpr std::size_t kFullBytes = 16 << 20;

// Small pieces are joined up to this size, so that a write is worth its call.
constexpr std::size_t kJoinBytes = 64 << 10;

// Blocks only while `stop` has not been asked for. At most PIPE_BUF bytes at a time:
// that much a pipe takes whole once poll() says so, and never blocks. Cut after a
// newline where possible, so that a sentence of the launcher's own, which comes from
// another thread, does not tear a line.
void write_stoppable(int fd, std::string_view bytes, const std::stop_token& stop) {
  while (!bytes.empty() && !stop.stop_requested()) {
    pollfd ready{.fd = fd, .events = POLLOUT, .revents = 0};
    if (::poll(&ready, 1, 50) <= 0) continue;
    auto piece = bytes.substr(0, PIPE_BUF);
    if (piece.size() < bytes.size() && piece.rfind('\n') != std::string_view::npos) {
      piece = piece.substr(0, piece.rfind('\n') + 1);
    }
    const auto done = ::write(fd, piece.data(), piece.size());
    if (done < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (done < 0) return;  // the terminal is gone: the logs have the lines
    bytes.remove_prefix(static_cast<std::size_t>(done));
  }
}

}  // namespace

std::jthread start_thread(std::function<void(std::stop_token)> body) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::jthread thread(std::move(body));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

ConsoleQueue::ConsoleQueue(LogPump::Show show)
    : show_(std::move(show)),
      thread_(start_thread([this](const std::stop_token& stop) { run(stop); })) {}

void ConsoleQueue::push(StdStreams stream, std::string lines) {
  const std::scoped_lock lock(mutex_);
  waiting_bytes_ += lines.size();
  // Nothing is joined to the first: it is being written.
  if (items_.size() > 1 && items_.back().stream == stream &&
      items_.back().lines.size() + lines.size() <= kJoinBytes) {
    items_.back().lines += lines;
  } else {
    items_.push_back({stream, std::move(lines)});
  }
  more_.notify_one();
}

bool ConsoleQueue::is_full() const {
  const std::scoped_lock lock(mutex_);
  return waiting_bytes_ >= kFullBytes;
}

bool ConsoleQueue::wait_until_empty(SteadyTime deadline) {
  std::unique_lock lock(mutex_);
  return empty_.wait_until(lock, deadline, [this] { return items_.empty(); });
}

void ConsoleQueue::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (more_.wait(lock, stop, [this] { return !items_.empty(); })) {
    if (stop.stop_requested()) return;
    const Item& item = items_.front();
    lock.unlock();
    if (show_) {
      show_(item.stream, item.lines);
    } else {
      write_stoppable(item.stream == StdStreams::err ? STDERR_FILENO : STDOUT_FILENO,
                      item.lines, stop);
    }
    lock.lock();
    waiting_bytes_ -= items_.front().lines.size();
    items_.pop_front();
    if (items_.empty()) empty_.notify_all();
  }
}

}  // namespace lockstep::launcher::detail
