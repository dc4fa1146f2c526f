#include "lockstep/comm/modelled.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <ctime>
#include <deque>
#include <mutex>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/comm/detail/modelled_line.h"

namespace lockstep::comm {
namespace {

using detail::Line;
using detail::Occupy;
using std::chrono::nanoseconds;
using Steady = std::chrono::steady_clock;

// A sleeper wakes up late: the end is watched for.
void sleep_away(nanoseconds time) {
  constexpr std::chrono::microseconds kWatched{100};
  const auto end = Steady::now() + time;
  if (time > kWatched) std::this_thread::sleep_for(time - kWatched);
  while (Steady::now() < end) std::this_thread::yield();
}

nanoseconds time_of_this_thread() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
}

void compute_away(nanoseconds time) {
  const auto end = time_of_this_thread() + time;
  while (time_of_this_thread() < end) {
  }
}

// One collective on a thread's line.
struct Job {
  nanoseconds time{};
  bool done = false;
};

struct Queue {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<Job>> jobs;
  bool ended = false;  // nothing more is carried out
};

class JobPending : public Pending::Impl {
 public:
  JobPending(std::shared_ptr<Queue> queue, std::shared_ptr<Job> job)
      : queue_(std::move(queue)), job_(std::move(job)) {}

  void wait() override {
    std::unique_lock lock(queue_->mutex);
    queue_->changed.wait(lock, [&] { return job_->done || queue_->ended; });
    if (!job_->done) throw Error(Fault::comm, "comm: the modelled network was aborted");
  }

  bool done() override {
    const std::lock_guard lock(queue_->mutex);
    return job_->done || queue_->ended;
  }

 private:
  std::shared_ptr<Queue> queue_;
  std::shared_ptr<Job> job_;
};

class ThreadLine : public Line {
 public:
  explicit ThreadLine(Occupy occupy)
      : occupy_(std::move(occupy)),
        queue_(std::make_shared<Queue>()),
        thread_([this] { run(); }) {}

  ~ThreadLine() override {
    abort();
    thread_.join();
  }

  std::unique_ptr<Pending::Impl> take(nanoseconds time) override {
    auto job = std::make_shared<Job>(Job{time});
    const std::lock_guard lock(queue_->mutex);
    if (queue_->ended) {
      throw Error(Fault::comm, "comm: the modelled network was aborted");
    }
    queue_->jobs.push_back(job);
    queue_->changed.notify_all();
    return std::make_unique<JobPending>(queue_, std::move(job));
  }

  void abort() noexcept override {
    const std::lock_guard lock(queue_->mutex);
    queue_->ended = true;
    queue_->changed.notify_all();
  }

 private:
  void run() {
    std::unique_lock lock(queue_->mutex);
    while (true) {
      queue_->changed.wait(lock,
                           [&] { return queue_->ended || !queue_->jobs.empty(); });
      if (queue_->ended) return;
      const auto job = queue_->jobs.front();
      queue_->jobs.pop_front();
      lock.unlock();
      occupy_(job->time);
      lock.lock();
      job->done = true;
      queue_->changed.notify_all();
    }
  }

  Occupy occupy_;
  std::shared_ptr<Queue> queue_;
  std::thread thread_;  // last: it uses the others
};

std::size_t bytes_of(const Call& call) {
  std::size_t bytes = call.in.defined() ? call.in.nbytes() : 0;
  std::size_t out = 0;
  for (const auto& t : call.out) out += t.nbytes();
  return std::max(bytes, out);
}

// Computes the result as if the other ranks had nothing but zeros.
void carry_out_alone(const Call& call) {
  const torch::NoGradGuard no_grad;
  if (call.kind == Kind::reduce_scatter) {
    const auto& out = call.out[0];
    out.view(-1).copy_(call.in.view(-1).narrow(0, 0, out.numel()));
  } else if (call.kind == Kind::all_gather) {
    const auto flat = call.out[0].view(-1);
    const auto own = call.in.numel();
    flat.narrow(0, 0, own).copy_(call.in.view(-1));
    flat.narrow(0, own, flat.numel() - own).zero_();
  } else if (call.kind == Kind::all_gather_uneven) {
    call.out[0].view(-1).copy_(call.in.view(-1));
    for (std::size_t r = 1; r < call.out.size(); ++r) call.out[r].zero_();
  }
}

class Modelled : public Communicator {
 public:
  Modelled(ModelledOptions options, std::unique_ptr<Line> line)
      : options_(std::move(options)), line_(std::move(line)) {}

  int rank() const noexcept override { return 0; }
  int size() const noexcept override { return options_.ranks; }
  std::string_view backend() const noexcept override { return "modelled"; }
  Traits traits() const noexcept override { return {.is_modelled = true}; }
  torch::Device device() const override { return options_.device; }

  Pending start(const Call& call) override {
    carry_out_alone(call);
    const std::chrono::duration<double> time(modelled_seconds(call, options_));
    return Pending(line_->take(std::chrono::duration_cast<nanoseconds>(time)));
  }

  std::unique_ptr<Communicator> split(int, int) override {
    throw Error(Fault::config,
                "comm: a modelled network has no other ranks that could say which "
                "part they belong to; use comm.backend=auto");
  }

  void abort() noexcept override { line_->abort(); }

 private:
  ModelledOptions options_;
  std::unique_ptr<Line> line_;
};

}  // namespace

double modelled_seconds(const Call& call, const ModelledOptions& options) {
  const double n = options.ranks;
  const double whole = static_cast<double>(bytes_of(call)) / options.bytes_per_second;
  const double message = options.latency_seconds;
  const double depth = n > 1 ? std::ceil(std::log2(n)) : 0;
  const double hops = options.tree ? depth : n - 1;
  switch (call.kind) {
    case Kind::all_reduce:
      return 2 * hops * message + 2 * (n - 1) / n * whole;
    case Kind::reduce_scatter:
    case Kind::all_gather:
    case Kind::all_gather_uneven:
    case Kind::all_to_all:
      return hops * message + (n - 1) / n * whole;
    case Kind::broadcast:
      return n > 1 ? depth * message + whole : 0;
    default:
      return message + whole;
  }
}

std::unique_ptr<Communicator> make_modelled(const ModelledOptions& options) {
  LOCKSTEP_CHECK(options.ranks >= 1 && options.bytes_per_second > 0 &&
                     options.latency_seconds >= 0,
                 options.ranks, " ranks, ", options.bytes_per_second, " bytes/s");
  auto occupy = options.occupy;
  if (!occupy) occupy = options.busy ? compute_away : sleep_away;
  std::unique_ptr<Line> line;
  if (options.device.is_cpu()) {
    line = std::make_unique<ThreadLine>(std::move(occupy));
  } else {
    line = detail::make_stream_line(options.device, std::move(occupy));
  }
  return std::make_unique<Modelled>(options, std::move(line));
}

}  // namespace lockstep::comm
