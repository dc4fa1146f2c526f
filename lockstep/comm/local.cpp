#include "lockstep/comm/local.h"

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/detail/c10d.h"
#include "lockstep/comm/detail/difference.h"
#include "lockstep/comm/detail/local_execution.h"

namespace lockstep::comm {
namespace {

using torch::Tensor;

// Work of other streams that has to be waited for. On a CPU there is none.
class Moment {
 public:
  // Marks everything issued so far on the current stream of `device`.
  static Moment now(const torch::Device& device) {
    Moment moment;
    if (device.is_cpu()) return moment;
    const c10::impl::VirtualGuardImpl guard(device.type());
    moment.event_.emplace(device.type());
    moment.event_->record(guard.getStream(device));
    return moment;
  }

  // Makes later work on the current stream of `device` wait for it.
  void before_the_rest_of(const torch::Device& device) const {
    if (!event_) return;
    const c10::impl::VirtualGuardImpl guard(device.type());
    event_->block(guard.getStream(device));
  }

 private:
  std::optional<c10::Event> event_;
};

// Memory that a stream of this thread uses, though it belongs to another's, is not
// handed out again before that stream has come by.
void keep_for_current_stream(const Tensor& t) {
  if (!t.defined() || t.device().is_cpu() || t.numel() == 0) return;
  const c10::impl::VirtualGuardImpl guard(t.device().type());
  guard.recordDataPtrOnStream(t.storage().data_ptr(), guard.getStream(t.device()));
}

// One collective of all ranks.
struct LocalMeeting {
  std::vector<std::optional<Call>> calls;
  std::vector<Moment> ready;     // by rank: its tensors are filled
  std::vector<Moment> finished;  // by rank: the result is there
  int arrived = 0;
  bool done = false;
  std::optional<Error> problem;  // of all ranks alike
};

struct Mail {
  Tensor tensor;
  Moment sent;
};

using MailKey = std::tuple<int, int, int>;  // from, to, tag

// The state that the ranks share.
struct Hub {
  Hub(std::vector<torch::Device> its_devices, const LocalOptions& its_options)
      : devices(std::move(its_devices)), options(its_options) {}

  std::mutex mutex;
  std::condition_variable changed;
  const std::vector<torch::Device> devices;
  const LocalOptions options;
  std::map<std::uint64_t, std::shared_ptr<LocalMeeting>> meetings;  // by number
  std::map<MailKey, std::deque<Mail>> mail;
  std::map<std::pair<std::uint64_t, int>, std::shared_ptr<Hub>> parts;  // of split()
  std::optional<int> aborted_by;

  int size() const { return static_cast<int>(devices.size()); }
};

// Waits for a condition of the hub.
class Waiter {
 public:
  Waiter(std::shared_ptr<Hub> hub, int rank, Call call)
      : hub_(std::move(hub)), rank_(rank), call_(std::move(call)) {}

 protected:
  template <typename Condition, typename WhoIsMissing>
  void wait_until(std::unique_lock<std::mutex>& lock, const Condition& holds,
                  const WhoIsMissing& missing) {
    const auto ready = [&] { return holds() || hub_->aborted_by.has_value(); };
    const bool in_time = hub_->changed.wait_for(lock, hub_->options.timeout, ready);
    if (holds()) return;
    if (in_time) fail(str("rank ", *hub_->aborted_by, " aborted"));
    fail(str(missing(), " did not take part within ", hub_->options.timeout.count(),
             " ms"));
  }

  [[noreturn]] void fail(const std::string& why) const {
    throw Error(Fault::comm, "comm: ", describe(call_), " failed on rank ", rank_,
                " of ", hub_->size(), " (local, ", call_.site.file, ":",
                call_.site.line, "): ", why);
  }

  std::shared_ptr<Hub> hub_;
  int rank_;
  Call call_;
};

class MeetingPending : public Pending::Impl, Waiter {
 public:
  MeetingPending(Waiter waiter, std::shared_ptr<LocalMeeting> meeting)
      : Waiter(std::move(waiter)), meeting_(std::move(meeting)) {}

  void wait() override {
    std::unique_lock lock(hub_->mutex);
    wait_until(
        lock, [&] { return meeting_->done; }, [&] { return missing(); });
    if (meeting_->problem) throw *meeting_->problem;
    const auto index = static_cast<std::size_t>(rank_);
    meeting_->finished[index].before_the_rest_of(hub_->devices[index]);
  }

  bool done() override {
    const std::lock_guard lock(hub_->mutex);
    return meeting_->done;
  }

 private:
  std::string missing() const {
    std::vector<std::string> ranks;
    for (std::size_t r = 0; r < meeting_->calls.size(); ++r) {
      if (!meeting_->calls[r]) ranks.push_back(str("rank ", r));
    }
    return text::join(ranks, ", ");
  }

  std::shared_ptr<LocalMeeting> meeting_;
};

class MailPending : public Pending::Impl, Waiter {
 public:
  MailPending(std::shared_ptr<Hub> hub, int rank, Call call)
      : Waiter(std::move(hub), rank, std::move(call)) {}

  void wait() override {
    std::unique_lock lock(hub_->mutex);
    auto& box = hub_->mail[{call_.peer, rank_, call_.tag}];
    wait_until(
        lock, [&] { return !box.empty(); }, [&] { return str("rank ", call_.peer); });
    const auto mail = std::move(box.front());
    box.pop_front();
    lock.unlock();
    const auto& own = hub_->devices[static_cast<std::size_t>(rank_)];
    mail.sent.before_the_rest_of(own);
    if (mail.tensor.numel() != call_.out[0].numel()) {
      fail(str("rank ", call_.peer, " sent ", mail.tensor.numel(), " elements"));
    }
    call_.out[0].copy_(mail.tensor.view_as(call_.out[0]));
    keep_for_current_stream(mail.tensor);
  }

  bool done() override {
    const std::lock_guard lock(hub_->mutex);
    return !hub_->mail[{call_.peer, rank_, call_.tag}].empty();
  }
};

class LocalCommunicator : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<Hub> hub, int rank)
      : hub_(std::move(hub)), rank_(rank) {}

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return hub_->size(); }
  std::string_view backend() const noexcept override { return "local"; }
  Traits traits() const noexcept override {
    return {.sums_in_rank_order = true, .peers_are_threads = true};
  }
  torch::Device device() const override {
    return hub_->devices[static_cast<std::size_t>(rank_)];
  }

  Pending start(const Call& call) override {
    if (call.kind == Kind::send) {
      post(call);
      return {};
    }
    if (call.kind == Kind::recv) {
      return Pending(std::make_unique<MailPending>(hub_, rank_, call));
    }
    auto meeting = join(call);
    return Pending(std::make_unique<MeetingPending>(Waiter(hub_, rank_, call),
                                                    std::move(meeting)));
  }

  std::unique_ptr<Communicator> split(int color, int key) override;

  // Aborts the parts, too: nothing else can reach the threads that wait in one.
  void abort() noexcept override { abort(*hub_, rank_); }

 private:
  static void abort(Hub& hub, int rank) noexcept {
    const std::lock_guard lock(hub.mutex);
    if (!hub.aborted_by) hub.aborted_by = rank;
    hub.changed.notify_all();
    for (const auto& [place, part] : hub.parts) abort(*part, rank);
  }

  void post(const Call& call) {
    Mail mail{.tensor = call.out[0].clone(), .sent = Moment::now(device())};
    const std::lock_guard lock(hub_->mutex);
    hub_->mail[{rank_, call.peer, call.tag}].push_back(std::move(mail));
    hub_->changed.notify_all();
  }

  std::shared_ptr<LocalMeeting> join(const Call& call) {
    auto ready = Moment::now(device());
    std::unique_lock lock(hub_->mutex);
    const auto number = next_++;
    auto& place = hub_->meetings[number];
    if (!place) {
      place = std::make_shared<LocalMeeting>();
      place->calls.resize(hub_->devices.size());
      place->ready.resize(hub_->devices.size());
    }
    const auto meeting = place;
    meeting->calls[static_cast<std::size_t>(rank_)] = call;
    meeting->ready[static_cast<std::size_t>(rank_)] = std::move(ready);
    if (++meeting->arrived < hub_->size()) return meeting;
    hub_->meetings.erase(number);  // no rank joins it any more
    lock.unlock();
    carry_out(*meeting);
    lock.lock();
    meeting->done = true;
    for (auto& of_rank : meeting->calls) of_rank.reset();  // let go of the tensors
    hub_->changed.notify_all();
    return meeting;
  }

  void carry_out(LocalMeeting& meeting) const {
    meeting.finished.resize(hub_->devices.size());
    std::vector<Call> calls;
    for (const auto& call : meeting.calls) calls.push_back(*call);
    if (const auto difference = detail::first_difference(calls); !difference.empty()) {
      meeting.problem.emplace(Fault::config, difference);
      return;
    }
    const torch::NoGradGuard no_grad;
    for (std::size_t r = 0; r < calls.size(); ++r) {
      meeting.ready[r].before_the_rest_of(hub_->devices[r]);
    }
    try {
      detail::execute(calls, device());
    } catch (const std::exception& error) {
      meeting.problem.emplace(Fault::internal, "comm: ", describe(calls[0]),
                              " does not match: ", detail::first_line(error));
      return;
    }
    for (std::size_t r = 0; r < calls.size(); ++r) {
      for (const auto& t : calls[r].out) keep_for_current_stream(t);
      keep_for_current_stream(calls[r].in);
      meeting.finished[r] = Moment::now(hub_->devices[r]);
    }
  }

  std::shared_ptr<Hub> hub_;
  int rank_;
  std::uint64_t next_ = 0;
};

std::unique_ptr<Communicator> LocalCommunicator::split(int color, int key) {
  const auto number = next_;
  const auto all = torch::empty({2L * size()}, torch::kInt32);
  const auto mine = torch::tensor({color, key}, torch::kInt32);
  start({.kind = Kind::all_gather, .out = {all}, .in = mine, .site = CallSite::here()})
      .wait();
  const auto* word = all.const_data_ptr<std::int32_t>();
  std::vector<std::pair<int, int>> members;
  std::vector<torch::Device> devices;
  for (int r = 0; r < size(); ++r) {
    if (word[2 * r] == color) members.emplace_back(word[2 * r + 1], r);
  }
  std::sort(members.begin(), members.end());
  for (const auto& member : members) {
    devices.push_back(hub_->devices[static_cast<std::size_t>(member.second)]);
  }
  const auto self = std::find(members.begin(), members.end(), std::pair(key, rank_));
  const std::lock_guard lock(hub_->mutex);
  auto& part = hub_->parts[{number, color}];
  if (!part) part = std::make_shared<Hub>(devices, hub_->options);
  return std::make_unique<LocalCommunicator>(part,
                                             static_cast<int>(self - members.begin()));
}

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_local(
    const std::vector<torch::Device>& devices, const LocalOptions& options) {
  LOCKSTEP_CHECK(!devices.empty());
  const auto hub = std::make_shared<Hub>(devices, options);
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (std::size_t r = 0; r < devices.size(); ++r) {
    ranks.push_back(std::make_unique<LocalCommunicator>(hub, static_cast<int>(r)));
  }
  return ranks;
}

}  // namespace lockstep::comm
