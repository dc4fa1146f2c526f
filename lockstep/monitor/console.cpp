#include "lockstep/monitor/console.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "lockstep/base/files.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"

namespace lockstep::monitor {
namespace {

using std::chrono::duration_cast;
using std::chrono::seconds;

constexpr std::chrono::milliseconds kRedrawEvery{100};
constexpr std::string_view kEraseLine = "\r\x1b[2K";

int terminal_columns() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    return size.ws_col;
  return 80;
}

// Returns the first `columns` characters of UTF-8 text: a live line that wraps can not
// be erased.
std::string_view cut(std::string_view text, int columns) {
  std::size_t end = 0;
  int used = 0;
  while (end < text.size()) {
    std::size_t next = end + 1;
    while (next < text.size() &&
           (static_cast<unsigned char>(text[next]) & 0xC0) == 0x80) {
      ++next;
    }
    if (++used > columns) break;
    end = next;
  }
  return text.substr(0, end);
}

}  // namespace

std::string progress_text(const ProgressLine& p,
                          std::chrono::duration<double> elapsed) {
  const double share = p.total_steps > 0 ? static_cast<double>(p.step) /
                                               static_cast<double>(p.total_steps)
                                         : 0;
  std::string remaining = "?";
  if (share > 0) {
    remaining =
        units::format_clock(duration_cast<seconds>(elapsed * ((1 - share) / share)));
  }
  auto line = fmt::format(
      "step {}/{}  {:.0f} %  {}<{}  loss {:.4f}", p.step, p.total_steps, 100 * share,
      units::format_clock(duration_cast<seconds>(elapsed)), remaining, p.loss);
  if (!p.metrics.empty()) line += "  " + p.metrics;
  line += fmt::format("  lr {:.2e}  {} samples/s  {}", p.lr,
                      units::format_rate(p.samples_per_second),
                      units::format_bytes(p.memory_bytes));
  return line;
}

ConsoleOptions standard_error_options(const terminal::Variable& variable) {
  const bool is_terminal = ::isatty(STDERR_FILENO) == 1;
  ConsoleOptions options;
  options.live = is_terminal && variable("TERM") != "dumb";
  options.color = terminal::wants_color(variable, is_terminal);
  options.columns = terminal_columns;
  options.write = [](std::string_view text) {
    try {
      files::write_all(STDERR_FILENO, text, "standard error");
    } catch (const std::exception&) {
      // A closed terminal must not end the training.
    }
  };
  return options;
}

Console::Console(ConsoleOptions options, const Clock& clock)
    : options_(std::move(options)), clock_(clock), started_(clock.now()) {}

Console::~Console() {
  try {
    finish();
  } catch (const std::exception&) {
    // There is no terminal left to tell.
  }
}

void Console::start() {
  const std::lock_guard lock(mutex_);
  started_ = clock_.now();
}

void Console::progress(const ProgressLine& progress) {
  const std::lock_guard lock(mutex_);
  latest_ = progress;
  unshown_ = true;
  draw(/*force=*/!drawn_);
}

void Console::tick(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  if (!options_.live || !latest_) return;
  latest_->step = step;
  unshown_ = true;
  draw(/*force=*/false);
}

void Console::draw(bool force) {
  if (!latest_) return;
  const auto now = clock_.now();
  const auto every = options_.live ? kRedrawEvery : options_.plain_every;
  if (!force && drawn_ && now - *drawn_ < every) return;
  drawn_ = now;
  unshown_ = false;
  const auto line = progress_text(*latest_, now - started_);
  if (!options_.live) {
    options_.write(line + "\n");
    return;
  }
  options_.write(fmt::format("{}{}", kEraseLine, cut(line, options_.columns() - 1)));
  live_drawn_ = true;
}

void Console::clear_live() {
  if (!live_drawn_) return;
  options_.write(kEraseLine);
  live_drawn_ = false;
}

void Console::print(std::string_view text) {
  const std::lock_guard lock(mutex_);
  const bool redraw = live_drawn_;
  clear_live();
  options_.write(text);
  if (redraw) draw(/*force=*/true);
}

void Console::log_line(log::Level level, std::string_view line) {
  if (!options_.color || level == log::Level::info) {
    print(line);
    return;
  }
  const int code = level == log::Level::error     ? 31
                   : level == log::Level::warning ? 33
                                                  : 2;
  const bool ends = !line.empty() && line.back() == '\n';
  if (ends) line.remove_suffix(1);
  print(fmt::format("\x1b[{}m{}\x1b[0m{}", code, line, ends ? "\n" : ""));
}

void Console::finish() {
  const std::lock_guard lock(mutex_);
  if (unshown_) draw(/*force=*/true);
  if (live_drawn_) options_.write("\n");
  live_drawn_ = false;
  latest_.reset();
}

}  // namespace lockstep::monitor
