#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

// Log lines for users:
//
//   I 12:03:44.125 r2 comm     joined 8 ranks over nccl in 412 ms
//
// Level, time, rank, module, one sentence with values. Numbers that a program wants go
// through monitor/, never through here.
namespace lockstep::log {

enum class Level { debug, info, warning, error };

// Receives finished lines besides the file: a live progress line takes them, so that
// they appear above it. The default writes to standard error. Called by one thread at a
// time.
using Writer = std::function<void(Level, std::string_view line)>;

struct Options {
  Level level = Level::info;   // the least level that is kept in the file
  Level shown = Level::info;   // the least level that goes to the writer
  std::filesystem::path file;  // "": none
  Writer writer;               // empty: standard error
};

// May be called again: lines logged from then on follow the new options. Throws
// Fault::io if the file can not be opened. Threads: start() by one at a time; the rest
// from anywhere.
void start(const Options& options);
void set_writer(Writer writer);

// Sets the rank that the calling thread's lines show (ranks may be threads). Unset
// shows "--".
void set_rank(int rank) noexcept;

void debug(std::string_view module, std::string_view sentence);
void info(std::string_view module, std::string_view sentence);
void warning(std::string_view module, std::string_view sentence);
void error(std::string_view module, std::string_view sentence);

}  // namespace lockstep::log
