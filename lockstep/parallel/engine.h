#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "lockstep/comm/communicator.h"
#include "lockstep/models/gradient_sink.h"
#include "lockstep/parallel/layout.h"
#include "lockstep/parallel/observer.h"
#include "lockstep/parallel/shards.h"
#include "lockstep/parallel/stages.h"

namespace lockstep::parallel {

// How gradients travel. fp16 and bf16 halve the bytes and round every gradient once
// before it is summed: a relative error of up to 2^-11 and 2^-8; fp16 overflows beyond
// 65,504.
enum class Compression { none, fp16, bf16 };

struct EngineOptions {
  // The row of the table of stages: 0 sums whole gradients on every rank (DDP), 1 each
  // rank's shard of them, which it alone changes the parameters by (ZeRO-1).
  Stage stage = kStages[0];
  LayoutOptions layout;
  // A parameter that took no part in a backward pass is an error that names it, unless
  // this is set: then its gradient is what the other ranks have.
  bool find_unused_parameters = false;
  // The same parameters are used in every step: the check is made in the first one
  // only.
  bool static_graph = false;
  // Gradients are views into the buckets. Without, each has memory of its own and is
  // copied in and out, for programs that replace gradients.
  bool gradient_as_bucket_view = true;
  Compression compression = Compression::none;
  // Sum in the order of the ranks whatever the backend does, at the price of gathering
  // the gradients of all ranks.
  bool deterministic = false;
  // backward() returns with the sums. Without, finish() waits for them, so that
  // something else can be done meanwhile.
  bool waits_in_backward = true;
};

// When the gradients of a step were ready and how long their sums were waited for, in
// seconds; what straggler reports are made of.
struct ExchangeTimes {
  // Each bucket, in the order in which they start: since the step began, before its
  // collective starts. Of several passes in a step the last one's.
  std::vector<double> ready;
  double last_ready = 0;  // the latest of them
  double waited = 0;      // in finish(): of the calling thread, or of the GPU's stream
};

// Keeps the gradients of a model summed over the ranks: the engine below DDP.
//
// Parameters move into flat buffers of which each is a view; so do their gradients. As
// soon as backward has filled a bucket its sum starts, in the order of the buckets, and
// is waited for at the end of the backward pass: a plain loss.backward() is enough. Not
// so for ranks that are threads and have tensors on a GPU (`local`): autograd's one
// thread for that GPU may serve several of them and must not wait for one, so each
// calls finish() on its own thread after every backward pass that exchanges.
//
// The loss is a sum over this rank's samples divided by the number of samples of all
// ranks, so that gradients add up.
//
// With on_relayout() on every rank the order of the buckets follows rank 0's first
// backward pass: it is agreed over the ranks and the buffers are laid out again, once,
// at the end of that pass. Without, nobody could tell an optimizer that what it
// remembers belongs elsewhere now: they stay as they are, last parameters first.
//
// Sparse gradients (of an embedding) are made dense: they travel, and are remembered,
// in full size.
//
// Collective: the constructor, backward passes (but in no_sync), finish(), updated(),
//             gather_gradients(), broadcast_buffers().
// Threads:    hooks run where autograd runs them and never wait for another rank.
// Lifetime:   the module and the communicators outlive it. After it the parameters stay
//             views of the flat buffers, and gradients are no longer exchanged.
class Engine {
 public:
  // `cpu` moves tensors of the host and is used for what is agreed, by the thread that
  // waits for a pass. Parameters and buffers get rank 0's values. Throws Fault::config
  // on every rank when the models differ, naming the first difference.
  Engine(torch::nn::Module& module, comm::Communicator& data, comm::Communicator& cpu,
         const EngineOptions& options = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // The flat buffers, one pair for each dtype.
  std::size_t num_groups() const noexcept;
  torch::Tensor& values(std::size_t group);
  torch::Tensor& gradients(std::size_t group);
  std::vector<torch::Tensor>& values();
  std::vector<torch::Tensor>& gradients();
  const std::vector<Group>& layout() const noexcept;
  const std::vector<Parameter>& parameters() const noexcept;

  // The pieces of the flat buffers that this rank changes after a step: whole ones, or
  // its shards, in which alone the gradients are sums then.
  const std::vector<Shard>& owned() const noexcept;

  // The values in owned()[index] have been changed: they start on their way to the
  // other ranks, where these do not change them themselves. In the order of owned().
  void updated(std::size_t index);
  // Waits for them; before the next forward pass.
  void wait_for_values();

  // Where gradients are sums in shards only: makes them whole, for whoever looks.
  void gather_gradients();

  // In which the parameters lie in the buffers now, by index; and to be laid out like
  // this before the first backward pass, on every rank, as an earlier run came to do.
  // What was made of the buffers before is of the old places.
  const std::vector<std::size_t>& order() const noexcept;
  void use_order(const std::vector<std::size_t>& order);

  // Called when the buffers have been laid out again; `values`, `gradients` and owned()
  // are new then, and what is remembered of their elements has to move. Before the
  // first backward pass, on every rank: else they are never laid out again.
  void on_relayout(std::function<void()> callback);

  // Backward passes in its scope only accumulate; the first one after it exchanges the
  // sum of all.
  class NoSync {
   public:
    explicit NoSync(Engine& engine) noexcept;
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    Engine& engine_;
    bool before_;
  };
  NoSync no_sync() noexcept { return NoSync(*this); }

  // A backward pass of somebody who computes gradients without autograd: `compute` puts
  // them into the sink, which is this pass's alone. As loss.backward() otherwise: in
  // no_sync() they only accumulate, and what it throws leaves the pass to finish().
  // Passes of both kinds may follow each other in one step, but with
  // gradient_as_bucket_view only.
  void backward(const std::function<void(GradientSink&)>& compute);

  // The end of a backward pass: waits for what is under way, and takes part with zeros
  // in what this rank has not reached. Does nothing if that has been done in this step
  // and no pass has begun since, so it may always be called (and a rank without samples
  // takes part in one pass of a step, not in several); it must be where no backward
  // pass has been (a rank without samples), where one ended with an exception (the sums
  // are worthless then, but no other rank waits for ever), and after each one where
  // backward() itself does not wait (above). Throws Fault::config, on every rank, for
  // unused parameters; on GPUs of several ranks one step late. `failed`: this rank's
  // gradients are not complete, so what it has not used says nothing.
  void finish(bool failed = false);

  // Begins a step, on every rank. Gradients are written over by its first backward
  // pass, not now: until then they are undefined, and the flat buffers hold those of
  // before.
  void zero_gradients();

  // Parameters that no rank has used in this step; their gradients are zero. Empty
  // unless find_unused_parameters is set.
  const std::vector<std::size_t>& globally_unused() const noexcept;

  // Rank 0's buffers (running statistics, say) on every rank.
  void broadcast_buffers();

  // Of the last finished pass, on the clock of the host.
  const ExchangeTimes& times() const noexcept;
  // On a GPU's own clock, of the step before: nothing waits for them. Empty on a CPU.
  const ExchangeTimes& device_times() const noexcept;

  // While a CUDA graph captures a pass: nothing is timed, and ranks do not tell each
  // other what they use, which is the same in every replay. What this rank alone has
  // not used in it is captured_unused().
  void set_captured(bool captured) noexcept;
  const std::vector<std::size_t>& captured_unused() const noexcept;
  // A pass that was captured ended with an exception: none of it has run anywhere, so
  // nobody waits for this rank's part.
  void forget_captured() noexcept;

  // Tells of what travels from now on; nullptr: nobody. It outlives what it was told.
  void observe(ExchangeObserver* observer) noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::parallel
