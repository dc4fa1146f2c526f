#include "lockstep/base/log.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>

#include <fmt/format.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"

namespace lockstep::log {
namespace {

thread_local int this_rank = -1;  // NOLINT: a thread is a rank, see set_rank()

Level level_of(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::trace:
    case spdlog::level::debug:
      return Level::debug;
    case spdlog::level::warn:
      return Level::warning;
    case spdlog::level::err:
    case spdlog::level::critical:
      return Level::error;
    default:
      return Level::info;
  }
}

spdlog::level::level_enum spdlog_level(Level level) {
  switch (level) {
    case Level::debug:
      return spdlog::level::debug;
    case Level::warning:
      return spdlog::level::warn;
    case Level::error:
      return spdlog::level::err;
    default:
      return spdlog::level::info;
  }
}

// A log that nobody looks at for weeks must not fill the disk.
constexpr std::size_t kRotateBytes = 64 << 20;
constexpr std::size_t kKept = 3;  // rank_0.1.log, ...

class WriterSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  void set(Writer writer) {
    const std::lock_guard lock(mutex_);
    writer_ = std::move(writer);
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    const std::string_view text(line.data(), line.size());
    if (writer_) {
      writer_(level_of(message.level), text);
      return;
    }
    try {
      files::write_all(STDERR_FILENO, text, "standard error");
    } catch (const std::exception&) {
      // A closed standard error must not end the program.
    }
  }
  void flush_() override {}

 private:
  Writer writer_;  // guarded by mutex_ of the base
};

// Level letter as in the examples of log.h: D I W E.
class LevelLetter : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& into) override {
    into.push_back("DIWE"[static_cast<int>(level_of(message.level))]);
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<LevelLetter>();
  }
};

std::unique_ptr<spdlog::formatter> line_format() {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<LevelLetter>('*').set_pattern("%* %H:%M:%S.%e %v");
  return formatter;
}

class State {
 public:
  const std::shared_ptr<WriterSink> terminal = std::make_shared<WriterSink>();

  State() { reset({}); }

  std::shared_ptr<spdlog::logger> logger() {
    const std::lock_guard lock(mutex_);
    return logger_;
  }

  void reset(const Options& options) {
    std::vector<spdlog::sink_ptr> sinks{terminal};
    if (!options.file.empty()) {
      try {
        sinks.push_back(std::make_shared<spdlog::sinks::rotating_file_sink_mt>(
            options.file.string(), kRotateBytes, kKept));
      } catch (const spdlog::spdlog_ex& error) {
        throw Error(Fault::io, "log: ", error.what());
      }
      sinks.back()->set_level(spdlog_level(options.level));
    }
    terminal->set(options.writer);
    terminal->set_level(spdlog_level(options.shown));
    const auto next =
        std::make_shared<spdlog::logger>("lockstep", sinks.begin(), sinks.end());
    next->set_level(spdlog_level(std::min(options.level, options.shown)));
    next->flush_on(spdlog::level::debug);  // a crash loses no line
    next->set_formatter(line_format());
    const std::lock_guard lock(mutex_);
    logger_ = next;
  }

 private:
  std::mutex mutex_;  // guards the one below
  std::shared_ptr<spdlog::logger> logger_;
};

// The one process-wide thing here: a log is per process by nature.
State& state() {
  static State instance;
  return instance;
}

void write(spdlog::level::level_enum level, std::string_view module,
           std::string_view sentence) {
  const auto rank = this_rank < 0 ? std::string("--") : fmt::format("r{}", this_rank);
  state().logger()->log(level, "{} {:<8} {}", rank, module, sentence);
}

}  // namespace

void start(const Options& options) {
  state().reset(options);
}

void set_writer(Writer writer) {
  state().terminal->set(std::move(writer));
}

void set_rank(int rank) noexcept {
  this_rank = rank;
}

void debug(std::string_view module, std::string_view sentence) {
  write(spdlog::level::debug, module, sentence);
}

void info(std::string_view module, std::string_view sentence) {
  write(spdlog::level::info, module, sentence);
}

void warning(std::string_view module, std::string_view sentence) {
  write(spdlog::level::warn, module, sentence);
}

void error(std::string_view module, std::string_view sentence) {
  write(spdlog::level::err, module, sentence);
}

}  // namespace lockstep::log
