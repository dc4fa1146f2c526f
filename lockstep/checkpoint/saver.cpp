#include "lockstep/checkpoint/saver.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include <ATen/Parallel.h>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/library_error.h"
#include "lockstep/base/log.h"
#include "lockstep/checkpoint/detail/staging.h"
#include "lockstep/storage/publish.h"

namespace lockstep::checkpoint {
namespace {

using Milliseconds = std::chrono::milliseconds;

std::string record_name(int rank) {
  return str("rank_", rank, ".json");
}

}  // namespace

// One save, on a thread of its own.
class Saver::Job {
 public:
  Job(const Options& options, Staging& staging, storage::Manifest head)
      : options_(options),
        staging_(staging),
        head_(std::move(head)),
        step_(head_.step) {
    thread_ = std::jthread([this] { run(); });
  }
  // Makes a save that has failed before it began; the others are told as of any other.
  struct Failed {
    storage::Manifest head;
    std::string problem;
  };
  Job(const Options& options, Staging& staging, Failed failed)
      : options_(options),
        staging_(staging),
        head_(std::move(failed.head)),
        step_(head_.step),
        failed_(true),
        told_(comm::kSaveFailed),
        text_(std::move(failed.problem)) {}
  ~Job() { abandon(); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  void abandon() {
    change([this] { abandoned_ = true; });
    if (thread_.joinable()) thread_.join();
  }

  void wait_until_copied() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return copied_ || failed_; });
  }
  void wait(Milliseconds limit) {
    std::unique_lock lock(mutex_);
    const auto before = told_;
    changed_.wait_for(lock, limit, [&] { return told_ != before; });
  }

  comm::Flags flags() const {
    const std::scoped_lock lock(mutex_);
    return told_;
  }
  void may_write() {
    change([this] { may_write_ = true; });
  }
  void may_publish() {
    change([this] { may_publish_ = true; });
  }
  // To be called after the end of the thread.
  std::string text() const {
    const std::scoped_lock lock(mutex_);
    return text_;
  }
  std::int64_t step() const { return step_; }
  double age() const { return seconds_between(begin_, Clock::system().now()); }
  void add_blocked(double seconds) { blocked_ += seconds; }
  double blocked() const { return blocked_; }
  double work() const {
    const std::scoped_lock lock(mutex_);
    return work_;
  }

 private:
  struct Abandoned {};

  template <typename Change>
  void change(const Change& how) {
    {
      const std::scoped_lock lock(mutex_);
      how();
    }
    changed_.notify_all();
  }
  void tell(comm::Flags flag) {
    change([&] { told_ |= flag; });
  }
  template <typename Work>
  void timed(const Work& work) {
    const auto begin = Clock::system().now();
    work();
    const auto seconds = seconds_between(begin, Clock::system().now());
    change([&] { work_ += seconds; });
  }
  void wait_for(const bool& allowed) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return allowed || abandoned_; });
    if (abandoned_) throw Abandoned();
  }
  bool is_abandoned() const {
    const std::scoped_lock lock(mutex_);
    return abandoned_;
  }

  storage::FileSystem& files() const { return *options_.files; }
  std::filesystem::path directory() const {
    return storage::partial_directory(options_.checkpoints, step_);
  }

  void run() noexcept {
    at::set_num_threads(1);  // the others compute
    try {
      try {
        if (options_.rank == 0) {
          storage::begin_save(files(), options_.checkpoints, step_);
          tell(comm::kSaveOpen);
        }
        timed([this] {
          staging_.copy_host();
          change([this] { copied_ = true; });
          staging_.wait_for_device();
        });
        wait_for(may_write_);
        timed([this] { write(); });
        tell(comm::kSaveWritten);
        if (options_.rank == 0) {
          wait_for(may_publish_);
          publish();
        }
      } catch (const std::exception& error) {
        change([&] {
          text_ = without_frames(error);
          failed_ = true;
          told_ |= comm::kSaveFailed;
        });
        wait_for(never_);  // the others are told first
      }
    } catch (const Abandoned&) {
      if (options_.rank == 0) {
        storage::abandon_save(files(), options_.checkpoints, step_);
      }
    }
  }

  void write() {
    const auto written = staging_.write(files(), directory(), [this] {
      if (is_abandoned()) throw Abandoned();
    });
    storage::write_file(files(), directory() / record_name(options_.rank),
                        written.to_json());
  }

  void publish() {
    const auto begin = Clock::system().now();
    constexpr std::int64_t kLongest = std::int64_t{1} << 30;
    std::vector<storage::WrittenFile> written;
    for (int rank = 0; rank < options_.ranks; ++rank) {
      const auto record = directory() / record_name(rank);
      if (!std::filesystem::exists(record)) {
        throw Error(Fault::io, record.string(), " is not there, but rank ", rank,
                    " has written it: checkpoints need a directory that all nodes "
                    "share; set run.dir to one");
      }
      written.push_back(storage::WrittenFile::from_json(files::read(record, kLongest)));
      files().remove(record);
    }
    const auto path =
        storage::publish(files(), options_.checkpoints,
                         {.head = std::move(head_), .written = std::move(written)});
    try {
      auto keep = options_.keep;
      keep.always = step_;
      const auto pruned =
          storage::prune(files(), options_.checkpoints,
                         {.keep = keep, .trust = storage::Mark::written});
      for (const auto& bad : pruned.damaged) {
        log::warning("checkpoint", str("does not count as a checkpoint: ", bad.reason));
      }
    } catch (const Error& error) {  // the new one stands
      log::warning("checkpoint", str("old ones stay: ", error.what()));
    }
    change([&] {
      work_ += seconds_between(begin, Clock::system().now());
      text_ = path.string();
      told_ |= comm::kSavePublished;
    });
  }

  const Options& options_;
  Staging& staging_;
  storage::Manifest head_;
  const std::int64_t step_;
  const SteadyTime begin_ = Clock::system().now();
  double blocked_ = 0;  // of the thread that trains
  const bool never_ = false;

  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  bool copied_ = false, failed_ = false, abandoned_ = false;
  bool may_write_ = false, may_publish_ = false;
  comm::Flags told_ = 0;
  double work_ = 0;
  std::string text_;

  std::jthread thread_;  // last: it uses the rest
};

Saver::Saver(Options options)
    : options_(std::move(options)),
      staging_(std::make_unique<Staging>(options_.rank, options_.device)) {
  if (options_.files == nullptr) options_.files = &storage::FileSystem::real();
}

Saver::~Saver() = default;

void Saver::begin(Pieces pieces, storage::Manifest head) {
  LOCKSTEP_CHECK(!is_busy(), "a save of step ", job_->step(), " is under way");
  const auto begin = Clock::system().now();
  try {
    staging_->begin(std::move(pieces));
    job_ = std::make_unique<Job>(options_, *staging_, std::move(head));
  } catch (const std::exception& error) {  // no memory for the copies, above all
    job_ = std::make_unique<Job>(options_, *staging_,
                                 Job::Failed{std::move(head), without_frames(error)});
  }
  job_->add_blocked(seconds_between(begin, Clock::system().now()));
}

void Saver::fence() {
  if (!is_busy()) return;
  const auto begin = Clock::system().now();
  if (staging_->waits_on_host()) job_->wait_until_copied();
  staging_->fence_device();
  job_->add_blocked(seconds_between(begin, Clock::system().now()));
}

bool Saver::is_busy() const noexcept {
  return job_ != nullptr;
}

comm::Flags Saver::flags() const {
  return job_ ? job_->flags() : 0;
}

void Saver::wait(std::chrono::milliseconds limit) {
  if (!job_) return;
  const auto begin = Clock::system().now();
  job_->wait(limit);
  job_->add_blocked(seconds_between(begin, Clock::system().now()));
}

std::optional<Saver::SaveOutcome> Saver::on_ballots(
    const std::vector<comm::Ballot>& ballots) {
  if (!job_) return std::nullopt;
  const auto has = [](comm::Flags flag) {
    return [flag](const comm::Ballot& b) { return (b.flags & flag) != 0; };
  };
  const auto failed =
      std::find_if(ballots.begin(), ballots.end(), has(comm::kSaveFailed));
  const bool published = has(comm::kSavePublished)(ballots[0]);
  if (failed == ballots.end() && !published) {
    if (has(comm::kSaveOpen)(ballots[0])) job_->may_write();
    if (std::all_of(ballots.begin(), ballots.end(), has(comm::kSaveWritten))) {
      job_->may_publish();
    }
    return std::nullopt;
  }
  if (!published) job_->abandon();
  SaveOutcome outcome{.step = job_->step(),
                      .saved = published,
                      .text = job_->text(),
                      .bytes = staging_->num_bytes(),
                      .held_bytes = staging_->held_bytes(),
                      .blocked_seconds = job_->blocked(),
                      .seconds = job_->age(),
                      .work_seconds = job_->work()};
  if (outcome.text.empty()) {
    outcome.text =
        published ? storage::step_directory(options_.checkpoints, job_->step()).string()
                  : str("rank ", failed - ballots.begin(),
                        " could not write its part; its log says why");
  }
  job_.reset();
  return outcome;
}

}  // namespace lockstep::checkpoint
