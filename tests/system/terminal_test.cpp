// A run on a real (pseudo) terminal, as a person sees it and interrupts it.
#include <thread>

#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/run/heartbeat.h"
#include "tests/system/command.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

// `lockstep train` without an end, with the terminal as its controlling one.
class Terminal {
 public:
  explicit Terminal(const test::Path& run) {
    winsize size{.ws_row = 24, .ws_col = 60, .ws_xpixel = 0, .ws_ypixel = 0};
    const auto program = test::binary("lockstep").string();
    const auto recipe = test::quick_recipe();
    const auto directory = run.string();
    int master = -1;
    pid_ = ::forkpty(&master, nullptr, nullptr, &size);
    if (pid_ == 0) {
      ::setenv("TERM", "xterm", 1);
      ::unsetenv("NO_COLOR");
      ::execl(program.c_str(), "lockstep", "train", recipe.c_str(), "--run-dir",
              directory.c_str(), "train.steps=1000000", "train.log_every=1", nullptr);
      ::_exit(127);
    }
    master_ = files::Descriptor(master);
  }
  ~Terminal() {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Reads until `text` has been shown; false at the end of the output or out of
  // patience.
  bool shows(const std::string& text) {
    return shows_when([&] { return screen_.find(text) != std::string::npos; });
  }
  bool shows_when(const std::function<bool()>& condition) {
    while (!condition()) {
      if (!read_some()) return false;
    }
    return true;
  }
  // Nobody may be left to read it.
  void type(const std::string& keys) {
    if (::write(master_.get(), keys.data(), keys.size()) < 0) return;
  }
  // The exit status, once everything has been read.
  int end() {
    while (read_some()) {
    }
    int status = 0;
    const auto ended = [&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; };
    if (!test::eventually(ended)) return -1;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  const std::string& screen() const { return screen_; }

 private:
  bool read_some() {
    pollfd wanted{.fd = master_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&wanted, 1, static_cast<int>(test::kPatience.count())) <= 0)
      return false;
    char buffer[4096];
    const auto got = ::read(master_.get(), buffer, sizeof buffer);
    if (got <= 0) return false;
    screen_.append(buffer, static_cast<std::size_t>(got));
    return true;
  }

  pid_t pid_ = -1;
  files::Descriptor master_;
  std::string screen_;
};

TEST(TerminalRun, TheLiveLineIsRedrawnInPlaceAndFitsTheScreen) {
  const files::TemporaryDirectory folder;
  Terminal terminal(folder.path() / "r");
  const std::string redraw = "\r\x1b[2Kstep ";
  ASSERT_TRUE(terminal.shows(redraw + "1/1000000")) << terminal.screen();
  const auto first = terminal.screen().find(redraw);
  const auto second = [&] { return terminal.screen().find(redraw, first + 1); };
  ASSERT_TRUE(terminal.shows_when([&] { return second() != std::string::npos; }));
  const auto line = terminal.screen().substr(first, second() - first);
  EXPECT_THAT(line, testing::Not(HasSubstr("\n")));
  EXPECT_LE(line.size(),
            5u + 59u);  // what erases the old line, and 60 columns less one
}

TEST(TerminalRun, CtrlCOnceEndsTheRunCleanly) {
  const files::TemporaryDirectory folder;
  Terminal terminal(folder.path() / "r");
  ASSERT_TRUE(terminal.shows("step 1/")) << terminal.screen();
  terminal.type("\x03");
  EXPECT_EQ(terminal.end(), 130) << terminal.screen();
  EXPECT_THAT(terminal.screen(), HasSubstr("stopped by SIGINT"));
  EXPECT_EQ(run::RunDirectory::open(folder.path() / "r").read_record().state,
            run::RunStatus::stopped);
}

// The worker is kept stopped, so that it can not end by itself after the first Ctrl-C,
// with which the launcher wakes it up.
TEST(TerminalRun, CtrlCTwiceEndsItAtOnce) {
  const files::TemporaryDirectory folder;
  const auto run = folder.path() / "r";
  Terminal terminal(run);
  ASSERT_TRUE(terminal.shows("step 1/")) << terminal.screen();
  const int worker = run::HeartbeatReader(run / "heartbeat").read(0)->pid;
  ::kill(worker, SIGSTOP);
  const std::jthread stopper([worker](const std::stop_token& stop) {
    while (!stop.stop_requested() && ::kill(worker, SIGSTOP) == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  terminal.type("\x03");
  ASSERT_TRUE(terminal.shows("stopping after this step")) << terminal.screen();
  // A second one counts a moment after the first: keep typing until it does. Not
  // without end: a terminal drops what was printed just before a ^C.
  auto typed = std::chrono::steady_clock::now();
  ASSERT_TRUE(test::eventually([&] {
    const auto now = std::chrono::steady_clock::now();
    if (now - typed >= std::chrono::milliseconds(500)) {
      typed = now;
      terminal.type("\x03");
    }
    return ::kill(worker, 0) != 0;
  }));
  EXPECT_EQ(terminal.end(), 130) << terminal.screen();
  EXPECT_THAT(terminal.screen(), HasSubstr("quitting at once"));
  EXPECT_EQ(run::RunDirectory::open(run).read_record().state, run::RunStatus::stopped);
}

}  // namespace
}  // namespace lockstep
