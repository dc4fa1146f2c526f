#include "lockstep/cli/detail/top.h"

#include <array>
#include <cmath>

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/text.h"
#include "tests/cli/rig.h"

namespace lockstep {
namespace {

using cli::Screen;
using cli::top_frame;
using cli::TopState;
using ::testing::HasSubstr;
using ::testing::Not;

TopState busy_state() {
  TopState state;
  state.time = 1000;
  state.run.emplace();
  state.run->record.id = "0007";
  state.run->record.recipe = "recipes/x.yaml";
  state.run->record.state = run::RunStatus::running;
  state.run->step = 250;
  state.run->total_steps = 1000;
  state.run->duration_seconds = 100;
  state.run->train =
      monitor::Metrics{.step = 250,
                       .loss = 0.5,
                       .more = {{"lr", 0.001}, {"samples_per_second", 1234.0}}};
  state.ranks = {run::Beat{.step = 250, .phase = run::Phase::training, .time = 999.5},
                 std::nullopt};
  state.losses = {4, 3, 2, 1, std::nan("")};
  for (int i = 0; i < 2; ++i) {
    hardware::Gpu gpu;
    gpu.index = i;
    gpu.name = "Example H200";
    gpu.memory_total_bytes = 100;
    gpu.status.memory_used_bytes = 50;
    gpu.status.utilization_percent = 100;
    state.gpus.push_back(gpu);
  }
  state.memory_total_bytes = 8LL << 30;
  state.memory_used_bytes = 2LL << 30;
  for (int i = 0; i < 30; ++i) {
    state.events.push_back({.time = 900,
                            .kind = "alert",
                            .fields = {{"text", std::string(200, 'x') + "\x1b[2J"}}});
  }
  return state;
}

std::string joined(const std::vector<std::string>& lines) {
  return text::join(lines, "\n") + "\n";
}

TEST(TopFrame, ShowsTheRunItsRanksTheMachineAndEvents) {
  const auto text = joined(top_frame(busy_state(), {.utf8 = false}));
  EXPECT_THAT(text, HasSubstr("lockstep 0007  running  recipes/x.yaml"));
  EXPECT_THAT(text, HasSubstr("250/1000 25 %  05:00 left"));
  EXPECT_THAT(text, HasSubstr("loss  0.5  lr 0.001  1,234 samples/s  #+-_!"));
  EXPECT_THAT(text, HasSubstr("rank 0   step 250      training    0.5 s ago"));
  EXPECT_THAT(text, HasSubstr("rank 1   has not started"));
  EXPECT_THAT(text, HasSubstr("gpu 1 ############ 100 %   memory ######...... 50 %"));
  EXPECT_THAT(text, HasSubstr("n/a"));  // the temperature
  EXPECT_THAT(text, HasSubstr("01:40 ago  alert  text\n              xxxx"));
}

TEST(TopFrame, FitsEveryScreen) {
  for (const int columns : {1, 20, 80, 300}) {
    for (const int rows : {1, 5, 24, 100}) {
      for (const bool utf8 : {false, true}) {
        const auto lines =
            top_frame(busy_state(), {.columns = columns, .rows = rows, .utf8 = utf8});
        EXPECT_LE(lines.size(), static_cast<std::size_t>(rows));
        for (const auto& line : lines) {
          EXPECT_LE(text::columns(line), static_cast<std::size_t>(columns)) << line;
          EXPECT_EQ(text::first_invalid_utf8(line), std::nullopt) << line;
        }
      }
    }
  }
}

TEST(TopFrame, WithoutUtf8AndColourItIsPlainText) {
  for (const auto& line : top_frame(busy_state(), {.utf8 = false})) {
    for (const char c : line) EXPECT_TRUE(c >= 0x20 && c < 0x7F) << line;
  }
  EXPECT_THAT(joined(top_frame(busy_state(), {.color = true})), HasSubstr("\x1b["));
}

TEST(TopFrame, WithoutAGpuSaysWhy) {
  TopState state;
  state.note = "there is no run yet";
  state.gpu_note = "libnvidia-ml.so.1 is not there";
  EXPECT_THAT(joined(top_frame(state, {})),
              HasSubstr("gpu   none: libnvidia-ml.so.1 is not there\n"));
}

TEST(TopFrame, WithoutARunSaysWhy) {
  TopState state;
  state.note = "top: there is no run in 'runs'";
  EXPECT_THAT(joined(top_frame(state, {})), HasSubstr("there is no run in 'runs'"));
}

TEST(TopCommand, WithoutATerminalPrintsOnce) {
  const test::Rig rig("exit 0\n");
  ASSERT_EQ(rig.run({"train", "recipe.yaml"}).end.exit_status, 0);
  const auto output = rig.run({"top"});
  EXPECT_EQ(output.end.exit_status, 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("lockstep 0001  done"));
  EXPECT_THAT(output.out, HasSubstr("gpu   none"));
  EXPECT_THAT(output.out, Not(HasSubstr("\x1b")));
  EXPECT_EQ(rig.run({"top", "-1", "0001"}).out.substr(0, 14), "lockstep 0001 ");
  EXPECT_EQ(rig.run({"top", "nope"}).end.exit_status, 2);
}

// `lockstep top` on a terminal of 80 x 24.
class LiveTop {
 public:
  explicit LiveTop(const test::Path& runs) {
    winsize size{.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
    const auto program = test::binary("lockstep").string();
    int master = -1;
    pid_ = ::forkpty(&master, nullptr, nullptr, &size);
    if (pid_ == 0) {
      ::execl(program.c_str(), "lockstep", "top", "--dir", runs.c_str(), nullptr);
      ::_exit(127);
    }
    master_ = files::Descriptor(master);
  }
  bool shows(const std::string& text) {
    std::array<char, 4096> part{};
    while (screen_.find(text) == std::string::npos) {
      pollfd waiting{.fd = master_.get(), .events = POLLIN, .revents = 0};
      if (::poll(&waiting, 1, static_cast<int>(test::kPatience.count())) <= 0)
        return false;
      const auto count = ::read(master_.get(), part.data(), part.size());
      if (count <= 0) return false;
      screen_.append(part.data(), static_cast<std::size_t>(count));
    }
    screen_.clear();
    return true;
  }
  void type(char key) const { EXPECT_EQ(::write(master_.get(), &key, 1), 1); }
  void signal(int number) const { ::kill(pid_, number); }
  int end() const {
    int status = -1;
    ::waitpid(pid_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = -1;
  files::Descriptor master_;
  std::string screen_;
};

TEST(TopCommand, OnATerminalKeysSwitchAndEnd) {
  const test::Rig rig("exit 0\n");
  ASSERT_EQ(rig.run({"train", "recipe.yaml"}).end.exit_status, 0);
  ASSERT_EQ(rig.run({"train", "recipe.yaml"}).end.exit_status, 0);
  LiveTop top(rig.path("runs"));
  EXPECT_TRUE(top.shows("\x1b[?1049h"));
  EXPECT_TRUE(top.shows("lockstep 0002"));
  top.type('n');
  EXPECT_TRUE(top.shows("lockstep 0001"));
  top.type('p');
  EXPECT_TRUE(top.shows("lockstep 0002"));
  top.type('q');
  EXPECT_TRUE(top.shows("\x1b[?1049l"));  // the screen of before
  EXPECT_EQ(top.end(), 0);
}

TEST(TopCommand, ASignalLeavesTheTerminalAsItWas) {
  const test::Rig rig("exit 0\n");
  for (const int number : {SIGTERM, SIGHUP}) {
    LiveTop top(rig.path("runs"));
    EXPECT_TRUE(top.shows("there is no run"));
    top.signal(number);
    EXPECT_TRUE(top.shows("\x1b[?1049l"));
    EXPECT_EQ(top.end(), 0);
  }
  LiveTop interrupted(rig.path("runs"));
  EXPECT_TRUE(interrupted.shows("there is no run"));
  interrupted.type(3);  // Ctrl-C
  EXPECT_TRUE(interrupted.shows("\x1b[?1049l"));
  EXPECT_EQ(interrupted.end(), 0);
}

TEST(ReportCommand, WritesAPageIntoTheRun) {
  const test::Rig rig("exit 0\n");
  ASSERT_EQ(rig.run({"train", "recipe.yaml"}).end.exit_status, 0);
  ASSERT_EQ(rig.run({"train", "recipe.yaml", "optim.lr=0.5"}).end.exit_status, 0);
  const auto newest = rig.run({"report"});
  EXPECT_EQ(newest.end.exit_status, 0) << newest.err;
  EXPECT_EQ(newest.out, "runs/0002/report.html\n");
  EXPECT_THAT(test::read_file(rig.path("runs/0002/report.html")), HasSubstr("0002"));
  const auto both = rig.run({"report", "0001", "0002", "-o", "both.html"});
  EXPECT_EQ(both.out, "both.html\n");
  EXPECT_THAT(test::read_file(rig.path("both.html")),
              HasSubstr("<td>optim.lr</td><td>0.001</td><td>0.5</td>"));
  EXPECT_THAT(rig.run({"report", "0001", "-o", "-"}).out, HasSubstr("<!doctype html>"));
  const auto device = test::full_device(rig.path(""));
  const auto full = rig.run({"report", "0001", "-o", device.string()});
  EXPECT_EQ(full.end.exit_status, 3);
  EXPECT_THAT(full.err, HasSubstr("full': No space left"));
  EXPECT_TRUE(std::filesystem::is_character_file(device));
  EXPECT_THAT(rig.run({"report", "0001", "-o", "runs"}).err,
              HasSubstr("cannot write 'runs': it is a directory"));
  EXPECT_THAT(rig.run({"report", "0001", "0009"}).err,
              HasSubstr("report: there is no run '0009' in 'runs'"));
}

}  // namespace
}  // namespace lockstep
