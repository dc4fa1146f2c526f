#include "lockstep/cli/detail/progress_line.h"

#include "lockstep/base/str.h"
#include "lockstep/monitor/console.h"

namespace lockstep::cli {
namespace {

constexpr std::string_view kClearLine = "\r\x1b[K";
constexpr std::chrono::milliseconds kRedraw{100};
constexpr std::chrono::seconds kPlainLine{5};

}  // namespace

ProgressLine::ProgressLine(const Context& context, const Clock& clock)
    : clock_(clock), started_(clock.now()) {
  const auto options = monitor::standard_error_options(
      [&](std::string_view name) { return context.variable(name); });
  live_ = options.live;
  write_ = options.write;
}

ProgressLine::~ProgressLine() {
  if (live_ && shown_) write_(kClearLine);
}

void ProgressLine::show(const std::function<std::string()>& text) {
  const auto now = clock_.now();
  const auto since = now - shown_.value_or(started_);
  if (since < (live_ ? SteadyTime::duration(kRedraw) : kPlainLine)) return;
  shown_ = now;
  write_(live_ ? str(kClearLine, text()) : text() + "\n");
}

double ProgressLine::seconds() const {
  return seconds_between(started_, clock_.now());
}

}  // namespace lockstep::cli
