#include "lockstep/service/attempt.h"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/json_problem.h"
#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/service/detail/whole_number.h"
#include "lockstep/service/job_files.h"

namespace lockstep::service {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kLargestOrder = 16 << 20;
constexpr std::int64_t kLargestMark = 1 << 20;

struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

// Asked without taking it: a look must never be in the way of a supervisor.
bool is_locked(const JobFolder& folder) {
  const JobFile file(folder, "lock");
  if (!file) return false;
  auto lock = whole_file();
  return ::fcntl(file.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

template <typename Read>
auto read_json(const files::Path& path, std::int64_t limit, const Read& read)
    -> decltype(read(Json())) {
  try {
    return read(Json::parse(files::read(path, limit)));
  } catch (const Json::exception& error) {
    throw Error(Fault::io, path.string(), ": ", json_problem(error));
  }
}

std::optional<run::LockHolder> holder_of(const JobFile& file) {
  if (!file) return std::nullopt;
  return read_json(file.path(), kLargestMark, [](const Json& json) {
    return run::LockHolder{
        .host = json.at("host").get<std::string>(),
        .boot = json.at("boot").get<std::string>(),
        .pid = whole_number<int>(json.at("pid")),
        .process_start = whole_number<std::int64_t>(json.at("process_start"))};
  });
}

std::optional<AttemptEnd> end_of(const JobFile& file) {
  if (!file) return std::nullopt;
  return read_json(file.path(), kLargestMark, [](const Json& json) {
    return AttemptEnd{.state = run::run_status_of(json.at("state").get<std::string>())
                                   .value_or(run::RunStatus::failed),
                      .exit = whole_number<int>(json.at("exit")),
                      .message = json.at("message").get<std::string>(),
                      .may_retry = json.at("may_retry").get<bool>(),
                      .out_of_time = json.at("out_of_time").get<bool>(),
                      .seconds = json.at("seconds").get<double>()};
  });
}

constexpr const char* kStarted = ".started";
constexpr const char* kEnded = ".ended";

// Below the folder of the job.
files::Path attempt_file(int attempt, const char* ending) {
  return files::Path("attempts") / str(attempt, ending);
}

}  // namespace

files::Path JobFolder::started(int attempt) const {
  return path_ / attempt_file(attempt, kStarted);
}

files::Path JobFolder::ended(int attempt) const {
  return path_ / attempt_file(attempt, kEnded);
}

files::Path JobFolder::log(int attempt) const {
  return path_ / attempt_file(attempt, ".log");
}

std::int64_t bytes_below(const files::Path& folder) {
  std::int64_t bytes = 0;
  std::error_code gone;
  for (std::filesystem::recursive_directory_iterator it(folder, gone), end; it != end;
       it.increment(gone)) {
    std::error_code ignored;
    if (it->is_symlink(ignored) || !it->is_regular_file(ignored)) continue;
    const auto size = it->file_size(ignored);
    if (!ignored) bytes += static_cast<std::int64_t>(size);
  }
  return bytes;
}

std::string to_json(const Order& order) {
  const Json json = {{"job", order.job},
                     {"recipe", order.recipe},
                     {"overrides", order.overrides},
                     {"grace_ms", order.grace.count()},
                     {"time_limit_ms", order.time_limit.count()},
                     {"only_plans", order.only_plans}};
  return json.dump();
}

void write_order(const JobFolder& folder, const Order& order) {
  files::write_atomically(folder.order(), to_json(order));
}

Order read_order(const JobFolder& folder) {
  return read_json(folder.order(), kLargestOrder, [](const Json& json) {
    Order order;
    order.job = json.at("job").get<std::string>();
    order.recipe = json.at("recipe").get<std::string>();
    order.overrides =
        json.at("overrides").get<std::vector<std::pair<std::string, std::string>>>();
    order.grace =
        std::chrono::milliseconds(whole_number<std::int64_t>(json.at("grace_ms")));
    order.time_limit =
        std::chrono::milliseconds(whole_number<std::int64_t>(json.at("time_limit_ms")));
    order.only_plans = json.at("only_plans").get<bool>();
    return order;
  });
}

void write_end(const JobFolder& folder, int attempt, const AttemptEnd& end) {
  const Json json = {{"state", run::name_of(end.state)}, {"exit", end.exit},
                     {"message", end.message},           {"may_retry", end.may_retry},
                     {"out_of_time", end.out_of_time},   {"seconds", end.seconds}};
  files::write_atomically(folder.ended(attempt),
                          json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::optional<JobLock> JobLock::take(const JobFolder& folder) {
  files::Descriptor file(
      ::open(folder.lock().c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) files::fail("open", folder.lock(), errno);
  auto lock = whole_file();
  if (::fcntl(file.get(), F_OFD_SETLK, &lock) == 0) return JobLock(std::move(file));
  if (errno == EAGAIN || errno == EACCES) return std::nullopt;
  files::fail("lock", folder.lock(), errno);
}

bool begin_attempt(const JobFolder& folder, int attempt) {
  const auto path = folder.started(attempt);
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) return false;
  const auto self = run::this_process();
  const Json json = {{"host", self.host},
                     {"boot", self.boot},
                     {"pid", self.pid},
                     {"process_start", self.process_start}};
  files::write_atomically(path, json.dump());
  return true;
}

bool end_unbegun(const JobFolder& folder, int attempt) {
  std::filesystem::create_directories(folder.path() / "attempts");
  const auto lock = JobLock::take(folder);
  if (!lock || !begin_attempt(folder, attempt)) return false;
  write_end(folder, attempt,
            {.state = run::RunStatus::stopped,
             .exit = kExitStopped,
             .message = "stopped before it started"});
  return true;
}

namespace {

// What is said of a job, clients read: names in its folder, and not where that is.
std::string without_place(std::string message, const JobFolder& folder) {
  if (folder.path().empty()) return message;
  for (const auto& place : {folder.path().string() + "/", folder.path().string()}) {
    for (auto at = message.find(place); at != std::string::npos;
         at = message.find(place)) {
      message.erase(at, place.size());
    }
  }
  return message;
}

}  // namespace

AttemptView look_at_attempt(const JobFolder& folder, int attempt) {
  AttemptView view;
  // In this order: the end is written before the lock is given back.
  const bool locked = is_locked(folder);
  view.supervisor = holder_of(JobFile(folder, attempt_file(attempt, kStarted)));
  view.end = end_of(JobFile(folder, attempt_file(attempt, kEnded)));
  if (view.end) {
    view.end->message = without_place(std::move(view.end->message), folder);
    view.status = AttemptStatus::ended;
  } else if (locked) {
    view.status = view.supervisor ? AttemptStatus::alive : AttemptStatus::starting;
  } else if (view.supervisor) {
    const bool same_boot = view.supervisor->boot == run::this_process().boot;
    view.status = same_boot ? AttemptStatus::killed : AttemptStatus::rebooted;
  }
  return view;
}

double seconds_seen(const JobFolder& folder, int attempt) {
  const auto written = [&](const files::Path& name) {
    constexpr double kNanosecond = 1e-9;
    const JobFile file(folder, name);
    struct stat info {};
    if (!file || ::fstat(file.get(), &info) != 0) return 0.0;
    return static_cast<double>(info.st_mtim.tv_sec) +
           kNanosecond * static_cast<double>(info.st_mtim.tv_nsec);
  };
  const double begin = written(attempt_file(attempt, kStarted));
  double last = begin;
  for (const auto& name :
       {attempt_file(attempt, ".log"), files::Path("run/metrics.jsonl"),
        files::Path("run/events.jsonl"), files::Path("run/heartbeat")}) {
    last = std::max(last, written(name));
  }
  return last - begin;
}

bool signal_supervisor(const run::LockHolder& supervisor, int signal) {
  // The number may be another process's by now: hold the process first, then look
  // whether it is the one that was meant.
  const files::Descriptor process(
      static_cast<int>(::syscall(SYS_pidfd_open, supervisor.pid, 0)));
  if (!process) return false;
  run::RunRecord record;
  record.host = run::record_of_this_process().host;
  record.pid = supervisor.pid;
  record.process_start = supervisor.process_start;
  if (!run::may_be_alive(record)) return false;
  return ::syscall(SYS_pidfd_send_signal, process.get(), signal, nullptr, 0) == 0;
}

bool is_of_owner(const JobFolder& folder, const run::LockHolder& supervisor) {
  const auto owner = owner_of(folder);
  if (!owner) return false;
  std::string status;
  try {
    status = files::read(str("/proc/", supervisor.pid, "/status"), kLargestMark);
  } catch (const Error&) {
    return false;  // it is gone
  }
  // "Uid:", then the real, effective, saved and file system's one.
  for (const auto& line : text::split(status, '\n')) {
    if (!text::starts_with(line, "Uid:")) continue;
    const auto words = text::split(line, '\t');
    return words.size() > 2 && words[1] == str(*owner) && words[2] == str(*owner);
  }
  return false;
}

}  // namespace lockstep::service
