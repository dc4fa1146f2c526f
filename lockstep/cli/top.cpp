// lockstep top [RUN]: a live view of a run and of the machine.
#include "lockstep/cli/detail/top.h"

#include <array>
#include <ostream>

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/monitor/system_probe.h"

namespace lockstep::cli {
namespace {

// Keys come at once and are not shown; the terminal's mode is restored at the end,
// which signals bring about like a key.
class RawTerminal {
 public:
  explicit RawTerminal(std::ostream& out) : out_(out) {
    ::tcgetattr(STDIN_FILENO, &before_);
    auto raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    sigset_t ends;
    ::sigemptyset(&ends);
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&ends, number);
    ::pthread_sigmask(SIG_BLOCK, &ends, &mask_before_);
    signals_ = files::Descriptor(::signalfd(-1, &ends, SFD_CLOEXEC));
    out_ << "\x1b[?1049h\x1b[?25l" << std::flush;  // another screen, no cursor
  }
  ~RawTerminal() {
    out_ << "\x1b[?25h\x1b[?1049l" << std::flush;
    ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
    ::pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
  }
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

  // Returns the key pressed within a second, or 0; q when it is time to go.
  char key() const {
    std::array<pollfd, 2> waiting{
        pollfd{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0},
        pollfd{.fd = signals_.get(), .events = POLLIN, .revents = 0}};
    if (::poll(waiting.data(), waiting.size(), 1000) <= 0) return 0;
    if (waiting[1].revents != 0) {
      signalfd_siginfo taken{};
      static_cast<void>(::read(signals_.get(), &taken, sizeof taken));
      return 'q';
    }
    char key = 0;
    return ::read(STDIN_FILENO, &key, 1) == 1 ? key : 'q';
  }

 private:
  std::ostream& out_;
  termios before_{};
  sigset_t mask_before_{};
  files::Descriptor signals_;
};

bool takes_utf8(const Context& context) {
  for (const auto* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const auto value = context.variable(name).value_or("");
    if (value.empty()) continue;
    const auto lower = text::lower(value);
    return lower.find("utf-8") != std::string::npos ||
           lower.find("utf8") != std::string::npos;
  }
  return false;
}

}  // namespace

Screen screen_of(const Context& context) {
  Screen screen{.color = context.color_out, .utf8 = takes_utf8(context)};
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    screen.columns = size.ws_col;
    screen.rows = size.ws_row;
  }
  return screen;
}

namespace {

class Observer {
 public:
  Observer(std::string directory, const std::optional<std::string>& wanted)
      : directory_(std::move(directory)), probe_({.run_directory = "."}) {
    if (wanted) run_ = jobs::find_run("top", wanted, directory_).path().string();
    probe_.read();  // CPU times are told since the reading before
  }

  // Moves to the next older (1) or newer (-1) run.
  void move(int by) {
    const auto list = run::list_runs(directory_).runs;
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (!run_ || list[i].directory.path() == *run_) {
        const auto next = static_cast<std::ptrdiff_t>(i) + by;
        if (next < 0 || next >= std::ssize(list)) return;
        run_ = list[static_cast<std::size_t>(next)].directory.path().string();
        return;
      }
    }
  }

  TopState look() {
    TopState state;
    const auto sample = probe_.read();
    state.time = sample.time;
    state.gpus = probe_.gpus();
    state.gpu_note = probe_.gpu_note();
    for (std::size_t i = 0; i < state.gpus.size(); ++i) {
      state.gpus[i].status = sample.gpus[i];
    }
    for (const auto& reading : sample.readings) {
      if (reading.name == "cpu_utilization_ratio") state.cpu_share = reading.value;
      const auto bytes = static_cast<std::int64_t>(reading.value);
      if (reading.name == "host_memory_used_bytes") state.memory_used_bytes = bytes;
      if (reading.name == "host_memory_total_bytes") state.memory_total_bytes = bytes;
    }
    try {
      read_run(jobs::find_run("top", run_, directory_), state);
    } catch (const Error& error) {
      state.note = error.what();
    }
    return state;
  }

 private:
  static void read_run(const run::RunDirectory& run, TopState& state) {
    constexpr std::size_t kEvents = 20;
    state.run = jobs::view_of(run);
    for (const auto& line : monitor::recent_metrics(run.metrics())) {
      if (line.split == monitor::Split::train) state.losses.push_back(line.loss);
    }
    state.events = run::last_events(run.events(), kEvents);
    std::error_code ignored;
    if (!std::filesystem::exists(run.heartbeat(), ignored)) return;
    const run::HeartbeatReader hearts(run.heartbeat());
    for (int r = 0; r < hearts.ranks(); ++r) state.ranks.push_back(hearts.read(r));
  }

  const std::string directory_;
  std::optional<std::string> run_;  // nothing: the newest
  monitor::SystemProbe probe_;
};

void draw(const TopState& state, const Screen& screen, std::ostream& out) {
  std::string picture = "\x1b[H";
  for (const auto& line : top_frame(state, screen)) picture += line + "\x1b[K\r\n";
  picture.resize(picture.size() - 2);  // no line break behind the last: it would scroll
  out << picture << "\x1b[J" << std::flush;
}

int top(const Arguments& arguments, Context& context) {
  const auto directory = arguments.value("--dir").value_or(default_run_dir(context));
  Observer observer(directory, arguments.operand("RUN"));
  const bool live = ::isatty(STDOUT_FILENO) == 1 && ::isatty(STDIN_FILENO) == 1 &&
                    !arguments.has("--once");
  if (!live) {
    ::poll(nullptr, 0, 200);  // the use of the CPU shows over time
    for (const auto& line : top_frame(observer.look(), screen_of(context))) {
      context.out << line << "\n";
    }
    return kExitOk;
  }
  const RawTerminal terminal(context.out);
  while (true) {
    draw(observer.look(), screen_of(context), context.out);
    const char key = terminal.key();
    if (key == 'q' || key == 3 || key == 4) return kExitOk;
    if (key == 'n') observer.move(1);
    if (key == 'p') observer.move(-1);
  }
}

}  // namespace

Command top_command() {
  return {.name = "top",
          .summary = "Watch a run and the machine live.",
          .usage = "lockstep top [RUN] [--once]",
          .details =
              "Keys: q quits, n and p show the next older and newer run. Without a "
              "terminal, or with\n"
              "--once, one frame is printed.\n",
          .operands = {{.name = "RUN",
                        .help = "An id or a path; without it, the newest run.",
                        .required = false,
                        .completes = Completes::directory}},
          .options = {{.name = "--once",
                       .shorthand = "-1",
                       .help = "Print one frame and exit."},
                      {.name = "--dir",
                       .value = "DIR",
                       .help = "The directory that holds the runs (default: "
                               "LOCKSTEP_RUN_DIR, else runs).",
                       .completes = Completes::directory}},
          .run = top};
}

}  // namespace lockstep::cli
