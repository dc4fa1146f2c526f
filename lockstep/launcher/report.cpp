// Makes the report that a user reads when a job has failed.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/launcher/detail/judge.h"
#include "lockstep/run/error_file.h"

namespace lockstep::launcher {
namespace {

std::vector<std::string> tail_of(const files::Path& path) {
  constexpr std::int64_t kTailBytes = 8 << 10;
  try {
    const auto tail = files::read_tail(path, kTailBytes);
    const auto text = text::trim(tail);
    return text.empty() ? std::vector<std::string>() : text::split(text, '\n');
  } catch (const Error&) {
    return {};  // the log is a help, not the point
  }
}

std::string last_lines(const files::Path& path) {
  constexpr std::size_t kLines = 8;
  auto lines = tail_of(path);
  if (lines.size() > kLines) lines.erase(lines.begin(), lines.end() - kLines);
  const auto text = text::join(lines, "\n  ");
  return text.empty() ? "" : str("; last lines of its log:\n  ", text);
}

// Returns the error of a worker that could not leave its error file, on a full disk for
// instance: the sentence of a last line such as "E 12:03:44.125 r0 train    sentence".
std::string last_error_in(const files::Path& path) {
  const auto lines = tail_of(path);
  if (lines.empty() || !text::starts_with(lines.back(), "E ")) return "";
  std::string_view rest = lines.back();
  for (int word = 0; word < 4; ++word) {
    const auto end = rest.find(' ');
    if (end == std::string_view::npos) return "";
    rest = text::trim(rest.substr(end));
  }
  return std::string(rest);
}

// The status by which the loader of programs, and a shell, say that there is nothing to
// start.
constexpr int kNotLoaded = 127;

std::string why_not_loaded() {
  rlimit limit{};
  const bool limited =
      ::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return str(
      "the program or a library that it needs could not be loaded: a missing "
      "file, or too little memory",
      limited ? str(" (a process may have ",
                    units::format_bytes(static_cast<std::int64_t>(limit.rlim_cur)),
                    " here, ulimit -v)")
              : " (ulimit -v)");
}

std::string host_name() {
  char name[256] = "";
  if (::gethostname(name, sizeof name - 1) != 0) return "this host";
  return name;
}

bool is_alone(const Job& job) {
  return job.ranks.size() <= 1 && job.first.world_size <= 1;
}

std::string how_it_ended(const RankEnd& end) {
  const auto left = end.left == 0 ? "" : str("cannot be killed (state ", end.left, ")");
  if (!end.hang.empty()) {
    return str("hangs: ", end.hang, left.empty() ? "" : ", and ", left);
  }
  if (!left.empty()) return left;
  if (end.early) return "ended with exit status 0 before it had finished";
  const auto how = process::describe(end.end);
  if (end.end.signal == 0) {
    return str("ended with ", how,
               end.end.exit_status == kNotLoaded ? str(": ", why_not_loaded()) : "");
  }
  return str(
      "ended by ", how,
      end.end.signal == SIGKILL ? ", often the kernel's out-of-memory killer" : "");
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// Returns where to look for more about a silent rank; "" if there is no log.
std::string where_it_logged(const run::RunDirectory& run, const RankEnd& end) {
  std::error_code ignored;
  const auto log = run.log(end.rank);
  const bool said = end.end.exit_status == kNotLoaded &&
                    std::filesystem::exists(log, ignored) && !tail_of(log).empty();
  return said ? str("; see ", log.string()) : "";
}

// Returns the rank's own error; an earlier file says nothing about a signal.
std::optional<run::RankError> own_words(const run::RunDirectory& run,
                                        const RankEnd& end) {
  if (end.end.signal != 0 || end.end.ok()) return std::nullopt;
  return run::read_error(run.error(end.rank));
}

// Returns ": ..."; "" if the rank left no error. `said` is the text of another rank:
// ranks often fail in the same words.
std::string in_short(const std::optional<run::RankError>& error,
                     const std::string& said) {
  if (!error) return "";
  return str(": ", error->message == said ? "the same" : first_line(error->message));
}

// `words` are the rank's own about a failure.
std::string fate(const Job& job, const RankEnd& end, const std::string& words) {
  switch (ending_of(job, end)) {
    case Ending::well:
      return "exited 0";
    case Ending::stopped:
      return str("had stopped, ", process::describe(end.end));
    case Ending::told:
      return str("got SIGTERM, ", process::describe(end.end));
    case Ending::killed:
      return "got SIGTERM, did not exit, was killed";
    case Ending::failed:
      break;
  }
  return how_it_ended(end) + words;
}

}  // namespace

std::string failure_line(const run::RunDirectory& run, const Job& job,
                         const RankEnd& end) {
  const auto error = own_words(run, end);
  if (is_alone(job) && error) return error->message;
  const auto logged = job.is_ours() && !error && end.end.signal == 0 && !end.end.ok()
                          ? last_error_in(run.log(end.rank))
                          : "";
  const auto said =
      error ? str(" (", name_of(error->fault), "): ", error->message)
            : str(logged.empty() ? "" : ": ", logged, where_it_logged(run, end));
  if (is_alone(job)) return str("rank ", end.rank, " ", how_it_ended(end), said);
  return str("rank ", end.rank, " (pid ", end.pid, " on ", host_name(), ") ",
             how_it_ended(end), said);
}

std::string failure_report(const run::RunDirectory& run, const Job& job,
                           const FailedRanks& ranks) {
  const auto& [ends, first] = ranks;
  auto text = failure_line(run, job, ends[first]);
  const auto words = own_words(run, ends[first]);
  const bool words_are_enough = is_alone(job) && words;
  if (!words_are_enough) text += last_lines(run.log(ends[first].rank));
  for (std::size_t i = 0; i < ends.size(); ++i) {
    if (i == first) continue;
    const auto own =
        in_short(own_words(run, ends[i]), words ? words->message : std::string());
    text += str("\nrank ", ends[i].rank, " (pid ", ends[i].pid, ") ",
                fate(job, ends[i], own));
  }
  return text;
}

}  // namespace lockstep::launcher
