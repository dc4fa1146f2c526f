#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <torch/torch.h>

namespace lockstep::comm {

enum class Reduce { sum, mean, max, min };

// The source line that called a collective; errors name it. The default argument of
// every collective fills it in.
struct CallSite {
  const char* file = "";
  int line = 0;

  static constexpr CallSite here(const char* file = __builtin_FILE(),
                                 int line = __builtin_LINE()) {
    return {file, line};
  }
};

// A collective that has been started. Its tensors belong to it until wait() returns;
// destroying it without waiting only gives up the result.
class [[nodiscard]] Pending {
 public:
  class Impl {
   public:
    virtual ~Impl() = default;
    virtual void wait() = 0;
    virtual bool done() = 0;
  };

  Pending() = default;  // of a collective that had nothing to do
  explicit Pending(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

  // Makes the result visible to the current stream; does not block the host for CUDA
  // tensors. Throws Fault::comm if a peer failed or the timeout passed.
  void wait();

  // True when wait() would not block the host.
  bool done();

 private:
  std::unique_ptr<Impl> impl_;
};

enum class Kind {
  all_reduce,
  reduce_scatter,
  all_gather,
  all_gather_uneven,
  broadcast,
  all_to_all,
  send,
  recv,
};
std::string_view name_of(Kind kind) noexcept;
std::string_view name_of(Reduce op) noexcept;

// One collective, as data, for a backend.
struct Call {
  Kind kind = Kind::all_reduce;
  Reduce op = Reduce::sum;
  std::vector<torch::Tensor> out;  // one, but for all_gather_uneven: one of each rank
  torch::Tensor in;
  int peer = 0;  // broadcast: the root; send, recv: the other one
  int tag = 0;
  std::vector<std::int64_t> out_splits, in_splits;  // of all_to_all; empty: even
  CallSite site;
};

// Returns "all_reduce(sum) of float32 [1024]", without the call site.
std::string describe(const Call& call);

// The properties that callers of a communicator may rely on. Code asks for these, never
// for a backend by its name.
struct Traits {
  bool sums_in_rank_order = false;  // a sum has the bits of adding rank after rank
  bool shares_memory = false;       // ranks map each other's: a shard costs no more
  bool peers_are_threads = false;   // of this process
  bool is_modelled = false;         // the peers are not there, only the time they take
  bool can_be_captured = false;     // by a CUDA graph: nothing passes through the host
};

// The ranks of one job that exchange tensors.
//
// Collective: every method below but rank(), size(), backend(), traits(), abort() and
// the
//             destructor is called by all ranks, in the same order; send() and recv()
//             by the two concerned.
// Threads:    one thread at a time; abort() from any.
// Lifetime:   the destructor releases resources and never communicates, so an exception
//             may unwind through it.
// Tensors:    contiguous, on device(), and of the dtypes float64, float32, half,
//             bfloat16, int64, int32, int8 and uint8 (no mean of integers).
// Parts:      abort() need not reach communicators that split() has made; between
//             threads (`local`) it does.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  virtual std::string_view backend() const noexcept = 0;  // "gloo"; to be shown
  virtual Traits traits() const noexcept = 0;
  // Returns the device of this rank's tensors.
  virtual torch::Device device() const = 0;

  // Works in place; `t` has the same shape and dtype on every rank.
  Pending all_reduce(const torch::Tensor& t, Reduce op = Reduce::sum,
                     CallSite site = CallSite::here());

  // `out` gets rank r's slice of the reduction: numel(in) == size() * numel(out).
  Pending reduce_scatter(const torch::Tensor& out, const torch::Tensor& in,
                         Reduce op = Reduce::sum, CallSite site = CallSite::here());

  // `out` gets the ranks' `in` one after the other: numel(out) == size() * numel(in).
  Pending all_gather(const torch::Tensor& out, const torch::Tensor& in,
                     CallSite site = CallSite::here());

  // outs[r] gets rank r's `in`; every rank knows how much each other one sends.
  Pending all_gather(std::vector<torch::Tensor> outs, const torch::Tensor& in,
                     CallSite site = CallSite::here());

  Pending broadcast(const torch::Tensor& t, int root, CallSite site = CallSite::here());

  // Rank s's r-th part of `in` becomes the s-th part of rank r's `out`. The parts are
  // along dimension 0: equal, or of the given lengths.
  Pending all_to_all(const torch::Tensor& out, const torch::Tensor& in,
                     std::vector<std::int64_t> out_splits = {},
                     std::vector<std::int64_t> in_splits = {},
                     CallSite site = CallSite::here());

  // Messages keep the order in which they are issued. On nccl they share one stream: of
  // two ranks that send to each other, one has to receive first.
  Pending send(const torch::Tensor& t, int to, int tag = 0,
               CallSite site = CallSite::here());
  Pending recv(const torch::Tensor& t, int from, int tag = 0,
               CallSite site = CallSite::here());

  // Returns a tensor of one dimension, not filled, that the backend reduces faster than
  // others: with `shm` the ranks see each other's, and nothing is copied. It may
  // outlive the communicator. Size and dtype are the same on every rank.
  virtual torch::Tensor empty_buffer(std::int64_t num_elements, torch::Dtype dtype) {
    return torch::empty({num_elements}, torch::dtype(dtype).device(device()));
  }

  // Returns when all ranks have called it, and on a GPU when their streams are there.
  void barrier(CallSite site = CallSite::here());

  // Makes a communicator of the ranks that give the same `color`, ordered by `key` and
  // then by rank.
  virtual std::unique_ptr<Communicator> split(int color, int key = 0) = 0;

  // Ends pending collectives on this rank and lets the peers notice: collectives that
  // wait, here and there, end with Fault::comm. Never blocks.
  virtual void abort() noexcept = 0;

  // Starts a call that has been checked. For backends and their wrappers.
  virtual Pending start(const Call& call) = 0;

 private:
  Pending checked_start(Call call);
};

}  // namespace lockstep::comm
