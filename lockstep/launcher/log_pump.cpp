#include "lockstep/launcher/log_pump.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/launcher/detail/console_queue.h"
#include "lockstep/launcher/detail/lines.h"
#include "lockstep/launcher/rotating_file.h"

namespace lockstep::launcher {
namespace {

using detail::Joint;

// A writer that fills a pipe has to wait for us: fewer turns than with the default of
// 64 KiB. Also the most that can be in a pipe when its rank has ended.
constexpr std::size_t kPipeBytes = 256 << 10;

// The time after which streams that wait for the terminal are looked at again.
constexpr std::chrono::milliseconds kTerminalGrace{1'000};
constexpr std::chrono::milliseconds kTerminalPause{10};

struct Stream {
  StdStreams which;
  files::Descriptor pipe;
  detail::LineBuffer lines;
};

struct Rank {
  Rank(RankStreams rank, RotatingFile::Limits limits)
      : streams{{{StdStreams::out, std::move(rank.out), {}},
                 {StdStreams::err, std::move(rank.err), {}}}},
        log_path(rank.log),
        log(std::move(rank.log), limits),
        shown(rank.shown),
        prefix(std::move(rank.prefix)) {}

  bool is_open() const { return streams[0].pipe || streams[1].pipe; }

  std::array<Stream, 2> streams;
  files::Path log_path;
  RotatingFile log;
  Joint log_joint;
  StdStreams shown;
  std::string prefix;
};

// Returns what an ended stream still owes a place: its last line, and the newline.
std::string farewell(const Joint& joint, const Stream& stream) {
  std::string rest(stream.lines.rest());
  const bool in_line = rest.empty() ? joint.is_open(&stream) : rest.back() != '\n';
  if (in_line) rest += '\n';
  return rest;
}

// The places that the pieces go to.
class Outlets {
 public:
  explicit Outlets(LogPump::Show show) : console_(std::move(show)) {}

  void write(Rank& rank, const Stream& stream, std::string_view piece) {
    write_log(rank, stream, piece);
    if (has(rank.shown, stream.which)) write_console(rank, stream, piece);
  }

  void end(Rank& rank, const Stream& stream) {
    write_log(rank, stream, farewell(rank.log_joint, stream));
    if (!has(rank.shown, stream.which)) return;
    write_console(rank, stream, farewell(console_joint_, stream));
  }

  detail::ConsoleQueue& console() { return console_; }

 private:
  void write_log(Rank& rank, const Stream& stream, std::string_view piece) {
    if (piece.empty()) return;
    bool done = true;
    if (rank.log_joint.interrupts(&stream)) done = rank.log.append("\n");
    done = rank.log.append(piece) && done;
    rank.log_joint.wrote(&stream, piece);
    if (!done) complain(rank);
  }

  void write_console(const Rank& rank, const Stream& stream, std::string_view piece) {
    if (piece.empty()) return;
    end_open_line(&stream);
    console_.push(stream.which, console_joint_.prefixed(&stream, piece, rank.prefix));
    console_joint_.wrote(&stream, piece);
    console_stream_ = stream.which;
  }

  void end_open_line(const void* next) {
    if (console_joint_.interrupts(next)) console_.push(console_stream_, "\n");
  }

  // Complains once: a full disk is full for all ranks and all lines.
  void complain(const Rank& rank) {
    if (std::exchange(complained_, true)) return;
    end_open_line(nullptr);
    console_joint_ = {};
    console_.push(StdStreams::err,
                  str("launcher: cannot write '", rank.log_path.string(),
                      "': ", rank.log.problem(),
                      "; the ranks keep running, and logs will say what they lack\n"));
  }

  detail::ConsoleQueue console_;
  Joint console_joint_;
  StdStreams console_stream_ = StdStreams::out;  // of its last piece
  bool complained_ = false;
};

}  // namespace

// The thread that reads, and what it reads.
class LogPump::Reader {
 public:
  explicit Reader(Options options)
      : limits_{.rotate_bytes = options.rotate_bytes, .keep = options.keep},
        outlets_(std::move(options.show)),
        wake_(new_eventfd()),
        thread_(
            detail::start_thread([this](const std::stop_token& stop) { run(stop); })) {}

  ~Reader() {
    thread_.request_stop();
    wake();
  }

  void add(RankStreams streams) {
    for (const auto* pipe : {&streams.out, &streams.err}) {
      if (!*pipe) continue;
      ::fcntl(pipe->get(), F_SETPIPE_SZ,
              static_cast<int>(kPipeBytes));  // a user's pages may be used up
      ::fcntl(pipe->get(), F_SETFL, ::fcntl(pipe->get(), F_GETFL) | O_NONBLOCK);
    }
    const std::scoped_lock lock(mutex_);
    new_ranks_.push_back(std::make_unique<Rank>(std::move(streams), limits_));
    wake();
  }

  void finish(std::chrono::milliseconds limit) {
    const auto deadline = Clock::system().now() + limit;
    {
      std::unique_lock lock(mutex_);
      deadline_ = deadline;
      wake();
      finished_.wait(lock, [this] { return !deadline_; });
    }
    // Lines that were read last, perhaps at the limit, are still shown.
    outlets_.console().wait_until_empty(
        std::max(deadline, Clock::system().now() + kTerminalGrace));
  }

 private:
  static files::Descriptor new_eventfd() {
    files::Descriptor made(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    LOCKSTEP_CHECK(static_cast<bool>(made));
    return made;
  }

  void wake() const { ::eventfd_write(wake_.get(), 1); }

  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const auto deadline = take_news();
      wait_and_read(deadline);
      if (deadline && Clock::system().now() >= *deadline) give_up_streams();
      std::erase_if(ranks_, [](const auto& rank) { return !rank->is_open(); });
      if (deadline && ranks_.empty()) finished();
    }
  }

  // Takes what add() and finish() have left for us.
  std::optional<SteadyTime> take_news() {
    const std::scoped_lock lock(mutex_);
    std::move(new_ranks_.begin(), new_ranks_.end(), std::back_inserter(ranks_));
    new_ranks_.clear();
    return deadline_;
  }

  void finished() {
    const std::scoped_lock lock(mutex_);
    if (!new_ranks_.empty()) return;
    deadline_.reset();
    finished_.notify_all();
  }

  void wait_and_read(std::optional<SteadyTime> deadline) {
    if (deadline && ranks_.empty()) return;
    std::vector<pollfd> ready{{.fd = wake_.get(), .events = POLLIN, .revents = 0}};
    const bool full = outlets_.console().is_full();
    bool paused = false;
    for (const auto& rank : ranks_) {
      for (const auto& stream : rank->streams) {
        const bool pause = full && has(rank->shown, stream.which);
        paused |= pause;
        ready.push_back({.fd = pause ? -1 : stream.pipe.get(),  // poll skips -1
                         .events = POLLIN,
                         .revents = 0});
      }
    }
    ::poll(ready.data(), ready.size(), longest_wait(deadline, paused));
    eventfd_t ignored = 0;
    if (ready[0].revents != 0) ::eventfd_read(wake_.get(), &ignored);
    for (std::size_t i = 1; i < ready.size(); ++i) {
      if (ready[i].revents == 0) continue;
      auto& rank = *ranks_[(i - 1) / 2];
      read(rank, rank.streams[(i - 1) % 2]);
    }
  }

  static int longest_wait(std::optional<SteadyTime> deadline, bool paused) {
    if (paused) return static_cast<int>(kTerminalPause.count());
    if (!deadline) return -1;
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::system().now());
    return static_cast<int>(std::clamp<long>(left.count(), 0, 1 << 30));
  }

  // Returns how many bytes came: 0 if there are none now, or the stream has ended.
  std::size_t read(Rank& rank, Stream& stream) {
    const auto room = stream.lines.room();
    const auto got = ::read(stream.pipe.get(), room.data(), room.size());
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (got <= 0) {
      end(rank, stream);
      return 0;
    }
    stream.lines.filled(static_cast<std::size_t>(got));
    const auto piece = stream.lines.ready();
    if (!piece.empty()) outlets_.write(rank, stream, piece);
    stream.lines.taken(piece.size());
    return static_cast<std::size_t>(got);
  }

  void end(Rank& rank, Stream& stream) {
    outlets_.end(rank, stream);
    stream.pipe.reset();
  }

  // A process that outlived its rank holds these pipes: what they can hold is read, and
  // more is not waited for.
  void give_up_streams() {
    for (const auto& rank : ranks_) {
      for (auto& stream : rank->streams) {
        std::size_t total = 0;
        while (stream.pipe && total < kPipeBytes) {
          const auto bytes = read(*rank, stream);
          if (bytes == 0) break;
          total += bytes;
        }
        if (stream.pipe) end(*rank, stream);
      }
    }
  }

  const RotatingFile::Limits limits_;
  Outlets outlets_;
  files::Descriptor wake_;
  std::vector<std::unique_ptr<Rank>> ranks_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable finished_;
  std::vector<std::unique_ptr<Rank>> new_ranks_;
  std::optional<SteadyTime> deadline_;  // set: finish() waits

  std::jthread thread_;  // last: it uses the rest
};

LogPump::LogPump() : LogPump(Options{}) {}

LogPump::LogPump(Options options)
    : reader_(std::make_unique<Reader>(std::move(options))) {}

LogPump::~LogPump() = default;

void LogPump::add(RankStreams rank) {
  reader_->add(std::move(rank));
}

void LogPump::finish(std::chrono::milliseconds limit) {
  reader_->finish(limit);
}

}  // namespace lockstep::launcher
