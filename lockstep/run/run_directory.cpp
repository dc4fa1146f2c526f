#include "lockstep/run/run_directory.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/leftovers.h"
#include "lockstep/base/text.h"
#include "lockstep/run/detail/run_record.h"
#include "lockstep/run/run_lock.h"

namespace lockstep::run {
namespace {

constexpr std::int64_t kRecordLimitBytes = 1 << 20;

void check_name(const std::string& name) {
  if (name.empty()) return;
  if (name.front() != '.' && name.find('/') == std::string::npos) return;
  throw Error(Fault::config, "run.name: '", name,
              "' cannot name a directory; leave out slashes and a leading dot (run.dir "
              "names the parent)");
}

// Makes the parent directory, with all that was missing on the way to it; removes it
// again unless kept, as far as it is empty.
class Parent {
 public:
  explicit Parent(const Path& path) {
    std::error_code error;
    for (auto at = path; !at.empty() && !std::filesystem::exists(at, error) && !error;
         at = at.parent_path()) {
      made_.push_back(at);
    }
    std::filesystem::create_directories(path, error);
    if (error) {
      remove();
      throw Error(Fault::io, "cannot make the directory: ", error.message(),
                  "; choose another place with run.dir or --run-dir");
    }
  }
  ~Parent() {
    if (!kept_) remove();
  }
  Parent(const Parent&) = delete;
  Parent& operator=(const Parent&) = delete;

  void keep() noexcept { kept_ = true; }

 private:
  void remove() noexcept {
    for (const auto& path : made_) ::rmdir(path.c_str());
  }

  std::vector<Path> made_;  // deepest first
  bool kept_ = false;
};

// The hidden directory a run is made in; removed unless it became the run.
class Staging {
 public:
  explicit Staging(const Path& parent) {
    std::random_device random;
    do {
      path_ = parent / fmt::format(".new-run.{}.{:08x}", files::owner_mark(), random());
    } while (!files::make_new_directory(path_));
  }
  ~Staging() {
    if (path_.empty()) return;
    // Removal is by name first: a listing needs a descriptor, which may be lacking.
    for (const auto* name : {"config.yaml", "plan.json", "run.json", "lock"}) {
      ::unlink((path_ / name).c_str());
    }
    ::rmdir((path_ / "logs").c_str());
    if (::rmdir(path_.c_str()) == 0) return;
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  const Path& path() const noexcept { return path_; }

  // Returns false if there is such a directory already, and something in it.
  bool rename_to(const Path& target) {
    if (::rename(path_.c_str(), target.c_str()) == 0) {
      path_.clear();
      return true;
    }
    const int error = errno;
    if (error == ENOTEMPTY || error == EEXIST || error == ENOTDIR) return false;
    throw Error(Fault::io, "cannot make '", target.string(),
                "': ", std::strerror(error));
  }

 private:
  Path path_;
};

std::vector<Path> list_entries(const Path& directory) {
  std::vector<Path> paths;
  std::error_code error;
  std::filesystem::directory_iterator at(directory, error);
  for (; !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    paths.push_back(at->path());
  }
  if (!error) return paths;
  throw Error(Fault::io, "cannot read the directory '", directory.string(),
              "': ", error.message());
}

int next_number(const Path& parent) {
  long long highest = 0;
  for (const auto& path : list_entries(parent)) {
    const auto name = path.filename().string();
    const bool digits = name.find_first_not_of("0123456789") == std::string::npos;
    if (digits && name.size() < 9) {
      highest = std::max(highest, text::to_integer(name).value_or(0));
    }
  }
  return static_cast<int>(highest) + 1;
}

void write_content(const Path& directory, const NewRun& run) {
  files::write_atomically(directory / "config.yaml", run.config_yaml);
  files::write_atomically(directory / "plan.json", run.plan_json);
  files::make_new_directory(directory / "logs");
}

// Returns the directory of the run, renamed from `staging` to the id of its record; if
// that is empty, to the first number that is still free at that moment.
Path move_into_place(Staging& staging, const Path& parent, RunRecord record) {
  const auto name = record.id;
  int number = name.empty() ? next_number(parent) : 0;
  while (true) {
    record.id = name.empty() ? fmt::format("{:04}", number++) : name;
    files::write_atomically(staging.path() / "run.json", to_json(record));
    const Path target = parent / record.id;
    if (staging.rename_to(target)) return target;
    if (name.empty()) continue;
    std::error_code ignored;
    throw Error(Fault::config, "the run directory '", target.string(), "' ",
                std::filesystem::is_directory(target, ignored)
                    ? "exists already"
                    : "cannot be made: there is a file of that name",
                "; choose another run.name (or --run-dir), or remove it");
  }
}

// The first line of a message is enough where there is no room for more.
RunRecord shortened(RunRecord record) {
  constexpr std::size_t kEnough = 200;
  record.message = record.message.substr(0, record.message.find('\n'));
  if (record.message.size() > kEnough) record.message.resize(kEnough);
  return record;
}

// Writes `content` over the file's present bytes, which a full disk allows. A crash
// meanwhile tears it. Returns false if it needs more room than that, or if the disk
// does not even take this.
bool overwrite(const Path& path, std::string_view content) {
  constexpr std::int64_t kBlock = 512;  // of st_blocks, on every disk
  const files::Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
  const auto room = std::max<std::int64_t>(info.st_size, info.st_blocks * kBlock);
  if (static_cast<std::int64_t>(content.size()) > room) return false;
  std::size_t done = 0;
  while (done < content.size()) {
    const auto wrote = ::pwrite(file.get(), content.data() + done,
                                content.size() - done, static_cast<off_t>(done));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return false;
    done += static_cast<std::size_t>(wrote);
  }
  if (::ftruncate(file.get(), static_cast<off_t>(content.size())) != 0) return false;
  ::fsync(file.get());
  return true;
}

// A run that has ended must not stay "running" because the disk is full: then its
// record takes the place of the one before.
void replace_record(const Path& file, const RunRecord& record) {
  try {
    files::write_atomically(file, to_json(record));
  } catch (const Error&) {
    if (overwrite(file, to_json(record))) return;
    if (overwrite(file, to_json(shortened(record)))) return;
    throw;
  }
}

// Returns why a path is no run directory; "" if it is one.
std::string why_no_run(const Path& path) {
  std::error_code error;
  if (std::filesystem::exists(path / "run.json", error)) return "";
  return std::filesystem::exists(path, error)
             ? "is not a run directory (it has no run.json)"
             : "does not exist";
}

}  // namespace

RunDirectory RunDirectory::create(const Path& parent, const NewRun& run,
                                  const Clock& clock) {
  check_name(run.name);
  // "runs/" and "runs" are the same directory, but only one has a parent.
  const Path clean = parent.empty() ? Path(".") : parent.lexically_normal() / "";
  const Path where = clean.parent_path();
  auto record = run.record;
  record.id = run.name;
  if (record.started.empty()) record.started = iso_time(clock.wall());

  try {
    Parent made(where);
    files::sweep_leftovers(where);
    Staging staging(where);
    write_content(staging.path(), run);
    if (run.lock != nullptr) run.lock->emplace(RunLock::take(staging.path()));
    auto path = move_into_place(staging, where, record);
    if (run.lock != nullptr) (*run.lock)->moved_to(path);
    made.keep();
    files::sync_directory(where);
    return RunDirectory(std::move(path));
  } catch (const Error& error) {
    if (error.fault() != Fault::io) throw;
    throw Error(Fault::io, "run.dir: no run can be made in '", where.string(),
                "': ", error.what());
  }
}

RunDirectory RunDirectory::open(const Path& path) {
  RunDirectory directory(path);
  if (const auto reason = why_no_run(path); !reason.empty()) {
    throw Error(Fault::config, "run: '", path.string(), "' ", reason,
                "; `lockstep runs` lists the runs");
  }
  static_cast<void>(directory.read_record());
  return directory;
}

Path RunDirectory::log(int rank) const {
  return path_ / "logs" / fmt::format("rank_{}.log", rank);
}

Path RunDirectory::error(int rank) const {
  return path_ / fmt::format("error_rank_{}.json", rank);
}

RunRecord RunDirectory::read_record() const {
  return detail::parse_record(files::read(record_file(), kRecordLimitBytes),
                              record_file().string());
}

void RunDirectory::claim() const {
  auto record = read_record();
  const auto self = record_of_this_process();
  record.host = self.host;
  record.pid = self.pid;
  record.process_start = self.process_start;
  record.state = RunStatus::running;
  record.exit.reset();
  record.message.clear();
  record.finished.clear();
  replace_record(record_file(), record);
}

void RunDirectory::update_record(const StatusChange& change, const Clock& clock) const {
  auto record = read_record();
  record.state = change.state;
  record.exit = change.exit;
  record.message = change.message;
  record.finished = is_final(change.state) ? iso_time(clock.wall()) : "";
  replace_record(record_file(), record);
}

RunList list_runs(const Path& parent) {
  RunList list;
  std::error_code error;
  if (!std::filesystem::exists(parent, error)) return list;
  for (const auto& path : list_entries(parent)) {
    if (path.filename().string().front() == '.') continue;
    if (std::filesystem::exists(path / kBenchFile, error)) continue;
    if (auto reason = why_no_run(path); !reason.empty()) {
      list.skipped.push_back({path, std::move(reason)});
      continue;
    }
    try {
      auto directory = RunDirectory::open(path);
      auto record = directory.read_record();
      list.runs.push_back({std::move(directory), std::move(record)});
    } catch (const Error& problem) {
      list.skipped.push_back({path, problem.what()});
    }
  }
  std::sort(list.runs.begin(), list.runs.end(),
            [](const RunEntry& a, const RunEntry& b) {
              return std::pair(a.record.started, a.record.id) >
                     std::pair(b.record.started, b.record.id);
            });
  std::sort(list.skipped.begin(), list.skipped.end(),
            [](const auto& a, const auto& b) { return a.path < b.path; });
  return list;
}

}  // namespace lockstep::run
