// A Communicator over any of c10d's process groups.
#include "lockstep/comm/detail/c10d.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <stdexcept>
#include <thread>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/detail/difference.h"
#include "lockstep/comm/detail/failure_board.h"

namespace lockstep::comm::detail {
namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// The state that outlives the communicator while collectives are pending.
class State {
 public:
  explicit State(C10dParts parts) : parts_(std::move(parts)) {}
  ~State() {
    if ((given_up_ || stands_still()) && !aborted_) abort();
    if (!aborted_ && parts_.cut_at_the_end) parts_.cut();
    release();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const C10dParts& parts() const noexcept { return parts_; }

  c10::intrusive_ptr<c10d::Backend> group() {
    const std::lock_guard lock(mutex_);
    return group_;
  }

  void abort() noexcept {
    aborted_ = true;
    cut();
    release();
  }

  // Ends pending collectives.
  void cut() const noexcept {
    if (parts_.cut) parts_.cut();
  }

  bool aborted() const noexcept { return aborted_; }

  // A collective was given up before it was done: the group can not end cleanly.
  void give_up_one() noexcept { given_up_ = true; }

 private:
  // Gloo's thread has thrown: whoever ends the group would wait for it without end.
  bool stands_still() const noexcept {
    return parts_.complaint && parts_.complaint->load();
  }

  // A process group may wait for its threads when it is destroyed, and they for peers
  // that are gone: no caller should wait with them.
  void release() noexcept {
    c10::intrusive_ptr<c10d::Backend> group;
    {
      const std::lock_guard lock(mutex_);
      group = std::move(group_);
      parts_.group.reset();
    }
    if (!group || !aborted_) return;  // a clean end: nothing is under way
    try {
      std::thread([dying = std::move(group)]() mutable { dying.reset(); }).detach();
    } catch (const std::system_error&) {
      // No thread could be started: it is destroyed here.
    }
  }

  C10dParts parts_;
  std::mutex mutex_;
  c10::intrusive_ptr<c10d::Backend> group_ = parts_.group;
  std::atomic<bool> aborted_ = false;
  std::atomic<bool> given_up_ = false;
};

[[noreturn]] void fail(const State& state, const Call& call, const std::string& why) {
  const auto& parts = state.parts();
  throw Error(Fault::comm, "comm: ", describe(call), " failed on rank ", parts.rank,
              " of ", parts.size, " (", parts.name, ", ", call.site.file, ":",
              call.site.line, "): ", why);
}

// Gloo can not be asked to stop waiting, and after its own thread has thrown, the
// awaited collective never ends. `work` has to be one that says when it is completed.
void wait_for(c10d::Work& work, const Complaint& complaint) {
  constexpr std::chrono::seconds kLook{1};
  while (complaint && !complaint->load()) {
    try {
      work.wait(kLook);
      return;
    } catch (const std::exception&) {
      if (work.isCompleted()) break;
    }
  }
  if (complaint && complaint->load() && !work.isCompleted()) {
    throw std::runtime_error("gloo's thread hangs");
  }
  work.wait();
}

std::string explain(State& state, const Call& call, bool first) {
  const auto& parts = state.parts();
  if (!parts.asks_after_failure) return "";
  return difference_from_peers(
      {parts.store, parts.rank, parts.size},
      {signature(call), str(call.site.file, ":", call.site.line)},
      {.is_first = first, .when_told = [&state] { state.cut(); }});
}

// Once a collective has failed the connections of the group are in no known state, so
// it is given up as a whole, and peers that wait for this rank notice.
template <typename Body>
auto guarded(State& state, const Call& call, const Body& body) {
  try {
    return body();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    if (state.aborted()) fail(state, call, "the communicator was aborted");
    const auto why = first_line(error);
    const auto& complaint = state.parts().complaint;
    const bool mismatch = complaint && complaint->load();
    const bool late = why.find("imed out") != std::string::npos;
    const auto difference = explain(state, call, mismatch || late);
    state.abort();
    // After a timeout, the calls may differ only because a peer is gone.
    if (!difference.empty()) {
      throw Error(mismatch ? Fault::config : Fault::comm, difference);
    }
    fail(state, call,
         mismatch ? "a peer sends more than this rank expects; all ranks must issue "
                    "the same collectives in the same order (comm.debug=true names "
                    "both)"
                  : why + "; a peer has ended, or cannot be reached in time");
  }
}

// What c10d was asked for on behalf of a call.
struct Issued {
  std::vector<WorkPtr> works;
  torch::Tensor whole = {};  // what a reduce_scatter sums, if this rank cuts its part
};

class WorkPending : public Pending::Impl {
 public:
  WorkPending(std::shared_ptr<State> state, Call call, Issued issued)
      : state_(std::move(state)),
        call_(std::move(call)),
        works_(std::move(issued.works)),
        whole_(std::move(issued.whole)) {}

  ~WorkPending() override {
    try {
      if (!waited_ && !done()) state_->give_up_one();
    } catch (const std::exception&) {
      state_->give_up_one();  // of a capture that failed: it can not be asked
    }
  }

  void wait() override {
    waited_ = true;
    guarded(*state_, call_, [&] {
      // A message that is given up can not be waited for again.
      const bool looks = call_.kind != Kind::send && call_.kind != Kind::recv;
      const auto& complaint = state_->parts().complaint;
      for (const auto& work : works_) wait_for(*work, looks ? complaint : nullptr);
      return 0;
    });
    const bool divide =
        call_.op == Reduce::mean && !state_->parts().can_average && is_reduction();
    const torch::NoGradGuard no_grad;
    if (whole_.defined()) take_part();
    if (divide) call_.out[0].div_(state_->parts().size);
  }

  bool done() override {
    return std::all_of(works_.begin(), works_.end(),
                       [](const auto& work) { return work->isCompleted(); });
  }

 private:
  bool is_reduction() const {
    return call_.kind == Kind::all_reduce || call_.kind == Kind::reduce_scatter;
  }

  void take_part() {
    auto& out = call_.out[0];
    const auto begin = out.numel() * state_->parts().rank;
    out.copy_(whole_.view(-1).narrow(0, begin, out.numel()).view_as(out));
    whole_.reset();
  }

  std::shared_ptr<State> state_;
  Call call_;
  std::vector<WorkPtr> works_;
  torch::Tensor whole_;
  bool waited_ = false;
};

class C10dCommunicator : public Communicator {
 public:
  explicit C10dCommunicator(C10dParts parts)
      : state_(std::make_shared<State>(std::move(parts))) {}

  int rank() const noexcept override { return parts().rank; }
  int size() const noexcept override { return parts().size; }
  std::string_view backend() const noexcept override { return parts().name; }
  Traits traits() const noexcept override { return parts().traits; }
  torch::Device device() const override { return parts().device; }

  Pending start(const Call& call) override {
    const auto group = state_->group();
    if (!group) fail(*state_, call, "the communicator was aborted");
    auto issued = guarded(*state_, call, [&] { return issue(*group, call); });
    if (issued.works.empty()) return {};
    return Pending(std::make_unique<WorkPending>(state_, call, std::move(issued)));
  }

  std::unique_ptr<Communicator> split(int color, int key) override;

  void abort() noexcept override { state_->abort(); }

 private:
  const C10dParts& parts() const noexcept { return state_->parts(); }

  c10d::ReduceOp reduce_op(Reduce op) const {
    switch (op) {
      case Reduce::max:
        return c10d::ReduceOp::MAX;
      case Reduce::min:
        return c10d::ReduceOp::MIN;
      case Reduce::mean:
        return parts().can_average ? c10d::ReduceOp::AVG : c10d::ReduceOp::SUM;
      default:
        return c10d::ReduceOp::SUM;
    }
  }

  Issued issue(c10d::Backend& group, const Call& call) const;
  Issued issue_reduction(c10d::Backend& group, const Call& call) const;
  std::vector<WorkPtr> issue_uneven(c10d::Backend& group, const Call& call) const;

  std::shared_ptr<State> state_;
  int splits_ = 0;
};

Issued C10dCommunicator::issue_reduction(c10d::Backend& group, const Call& call) const {
  auto out = call.out[0];
  auto in = call.in;
  const bool scatters = call.kind == Kind::reduce_scatter;
  if (scatters && !parts().scatters_by_all_reduce) {
    c10d::ReduceScatterOptions options;
    options.reduceOp = reduce_op(call.op);
    return {{group._reduce_scatter_base(out, in, options)}};
  }
  c10d::AllreduceOptions options;
  options.reduceOp = reduce_op(call.op);
  const torch::NoGradGuard no_grad;
  const auto whole =
      scatters ? in.clone(torch::MemoryFormat::Contiguous) : torch::Tensor();
  std::vector<torch::Tensor> tensors{scatters ? whole : out};
  return {{group.allreduce(tensors, options)}, whole};
}

// Issues a broadcast from every rank that has elements: backends differ in whether
// their all_gather takes unequal parts, and a broadcast moves the same bytes.
std::vector<WorkPtr> C10dCommunicator::issue_uneven(c10d::Backend& group,
                                                    const Call& call) const {
  const torch::NoGradGuard no_grad;
  auto own = call.out[static_cast<std::size_t>(parts().rank)];
  if (own.data_ptr() != call.in.data_ptr()) own.copy_(call.in.view_as(own));
  std::vector<WorkPtr> works;
  for (int root = 0; root < parts().size; ++root) {
    std::vector<torch::Tensor> tensors{call.out[static_cast<std::size_t>(root)]};
    if (tensors[0].numel() == 0) continue;
    c10d::BroadcastOptions options;
    options.rootRank = root;
    works.push_back(group.broadcast(tensors, options));
  }
  return works;
}

Issued C10dCommunicator::issue(c10d::Backend& group, const Call& call) const {
  if (call.kind == Kind::all_gather_uneven) return {issue_uneven(group, call)};
  auto out = call.out[0];
  auto in = call.in;
  std::vector<torch::Tensor> tensors{out};
  // There is nothing to move on any rank. all_to_all may have something elsewhere.
  if (out.numel() == 0 && call.kind != Kind::all_to_all) return {};
  switch (call.kind) {
    case Kind::all_gather:
      return {{group._allgather_base(out, in)}};
    case Kind::broadcast: {
      c10d::BroadcastOptions options;
      options.rootRank = call.peer;
      return {{group.broadcast(tensors, options)}};
    }
    case Kind::all_to_all: {
      auto out_splits = call.out_splits, in_splits = call.in_splits;
      return {{group.alltoall_base(out, in, out_splits, in_splits)}};
    }
    case Kind::send:
      return {{group.send(tensors, call.peer, call.tag)}};
    case Kind::recv:
      return {{group.recv(tensors, call.peer, call.tag)}};
    default:
      return issue_reduction(group, call);
  }
}

// Colors and keys are exchanged through the group itself; the new group meets under a
// prefix of the store that only its ranks use.
std::unique_ptr<Communicator> C10dCommunicator::split(int color, int key) {
  const auto options = torch::dtype(torch::kInt32).device(device());
  const auto mine =
      torch::tensor({color, key}, torch::dtype(torch::kInt32)).to(device());
  const auto all = torch::empty({2L * size()}, options);
  all_gather(all, mine).wait();
  const auto words = all.cpu();
  const auto* word = words.const_data_ptr<std::int32_t>();
  std::vector<std::pair<int, int>> members;  // key, rank
  for (int r = 0; r < size(); ++r) {
    if (word[2 * r] == color) members.emplace_back(word[2 * r + 1], r);
  }
  std::sort(members.begin(), members.end());
  const auto self = std::find(members.begin(), members.end(), std::pair(key, rank()));
  const auto prefix = str("split_", splits_++, "_", color);
  return parts().remake(c10::make_intrusive<c10d::PrefixStore>(prefix, parts().store),
                        static_cast<int>(self - members.begin()),
                        static_cast<int>(members.size()));
}

}  // namespace

std::string first_line(const std::exception& error) {
  const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text =
      c10_error != nullptr ? c10_error->what_without_backtrace() : error.what();
  return std::string(text::trim(text.substr(0, text.find('\n'))));
}

std::unique_ptr<Communicator> make_c10d(C10dParts parts) {
  return std::make_unique<C10dCommunicator>(std::move(parts));
}

}  // namespace lockstep::comm::detail
