#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <torch/torch.h>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/join.h"
#include "lockstep/models/gradient_sink.h"
#include "lockstep/parallel/layout.h"
#include "lockstep/parallel/observer.h"
#include "lockstep/parallel/shards.h"
#include "lockstep/parallel/stages.h"

namespace lockstep::parallel {
namespace detail {
class Exchange;
class FlatBuffers;
class GradientHooks;
class ShardedValues;
class UnitGathers;
struct UnitPlan;
class UseTracker;
}  // namespace detail

// The format in which gradients travel. fp16 and bf16 halve the bytes and round every
// gradient once before it is summed: a relative error of up to 2^-11 and 2^-8; fp16
// overflows beyond 65,504.
enum class Compression { none, fp16, bf16 };

struct EngineOptions {
  // The row of the table of stages: 0 sums whole gradients on every rank (DDP), 1 each
  // rank's shard of them, which it alone changes the parameters by (ZeRO-1), 2 keeps
  // these shards only (ZeRO-2), 3 shards the parameters, too (ZeRO-3).
  Stage stage = kStages[0];
  LayoutOptions layout;
  // From stage 1 on: a whole lies in shards on so many ranks that follow each other,
  // and every such group has one. Gradients are summed within the groups, then each
  // shard over the groups; values travel within them only. The number of ranks is a
  // multiple of it. 0: all ranks are one group.
  int shard_group = 0;
  // The order in which gradients become ready, by index in trainable_parameters(), the
  // same on every rank (backward_order() finds it); buckets are cut along it. Empty:
  // last to first.
  std::vector<std::size_t> order = {};
  // Buckets of gradients that a rank has memory for at a time, from stage 2 on.
  std::size_t live_buckets = 2;
  // The modules whose parameters are waited for together after an update, and at stage
  // 3 gathered together, in the order in which a forward pass comes to them
  // (run_unit()). One that is used twice stands here twice, one inside of another
  // behind it: what is left of the outer one is gathered with it. A parameter of none,
  // or of several beside each other, is whole for a whole pass.
  std::vector<const torch::nn::Module*> units = {};
  // Stage 3: units that are gathered ahead of their use.
  std::size_t prefetch_units = 1;
  // Stage 3: units of fewer bytes are whole for a whole pass.
  std::int64_t persist_below = 0;
  // Stage 3: a unit is freed after its forward pass and gathered again for its backward
  // pass; without, it stays whole in between.
  bool reshard_after_forward = true;
  // Gives a model without memory its values (models::DeferredInit), so that it is never
  // there beside the flat buffers, and at stage 3 whole on no rank: calls its argument
  // with every parameter and buffer, the same values on every rank. Empty: the model
  // has them.
  using Assign = std::function<void(const torch::Tensor& tensor, const torch::Tensor&)>;
  std::function<void(const Assign& assign)> fill = {};
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
  // Sums are in the order of the ranks whatever the backend does, at the price of
  // gathering the gradients of all ranks.
  bool deterministic = false;
  // backward() returns with the sums. Without, finish() waits for them, so that
  // something else can be done meanwhile.
  bool waits_in_backward = true;
};

// How the ranks of an engine reach each other: `data` moves the model's tensors, `cpu`
// moves those of the host, for agreements, on the thread that waits for a pass.
struct Communicators {
  Communicators(comm::Communicator& for_data, comm::Communicator& for_host)
      : data(for_data), cpu(for_host) {}
  // A world has both, so that it can be passed as it is.
  Communicators(comm::World& world)  // NOLINT(google-explicit-constructor)
      : data(world.data()), cpu(world.cpu()) {}

  comm::Communicator& data;
  comm::Communicator& cpu;
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
// From stage 2 on gradients are whole in no rank's memory. Autograd's own are copied
// into a bucket when all of it are there, the bucket is summed into the shards, and its
// memory serves the next one; every backward pass of a step adds to the shards. Then
// finish() ends each step, and parameters have no grad().
//
// Sparse gradients (of an embedding) are made dense: they travel, and are remembered,
// in full size.
//
// At stage 3 the same holds for parameters: each rank keeps its shards, forward() and
// run_unit() gather those of a unit before it computes and free them after it, and the
// backward pass does so once more. Reading a parameter at another time finds no memory.
//
// Collective: the constructor, backward passes (but in no_sync), finish(), updated(),
//             gather_gradients(), broadcast_buffers(); at stage 3 forward passes.
// Threads:    hooks run where autograd runs them and never wait for another rank.
// Lifetime:   the module and the communicators outlive it. After it the parameters stay
//             views of the flat buffers, and gradients are no longer exchanged.
class Engine : public ExchangeMonitor {
 public:
  // Parameters and buffers get rank 0's values. Throws Fault::config on every rank when
  // the models differ, naming the first difference.
  Engine(torch::nn::Module& module, const Communicators& ranks,
         const EngineOptions& options = {});
  ~Engine() override;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // The flat buffers, one pair for each dtype.
  torch::Tensor& values(std::size_t group);
  torch::Tensor& gradients(std::size_t group);
  std::vector<torch::Tensor>& values();
  std::vector<torch::Tensor>& gradients();
  const std::vector<Group>& layout() const noexcept;
  const std::vector<Parameter>& parameters() const noexcept { return parameters_; }
  comm::Communicator& data() noexcept { return data_; }
  // Returns the ranks whose shards make a whole: all, or those of this rank's group.
  comm::Communicator& sharers() noexcept { return within_ ? *within_ : data_; }
  // Returns this rank's place among those that hold the same as it does.
  RankIndex replica() const noexcept;

  // Runs a forward pass, `compute`. At stage 3 parameters are there in it only: units
  // in run_unit(), the others throughout. With gradients enabled the pass goes on until
  // its backward pass ends. Before stage 3 it needs no call, but after
  // wait_for_values().
  void forward(const std::function<void()>& compute);
  // Takes part in a forward pass of other ranks that has no backward pass (evaluation),
  // for a rank that has no samples for it.
  void empty_forward();
  // Returns compute(input), where `use` is an index in EngineOptions::units. Before
  // stage 3 it waits for the unit's values, and that is all.
  using Compute = std::function<torch::Tensor(const torch::Tensor&)>;
  torch::Tensor run_unit(std::size_t use, const Compute& compute,
                         const torch::Tensor& input);

  // Returns a parameter of the module, trained or not, as a whole; at stage 3 it is
  // gathered for it, and valid until the next call. Collective there, and outside of a
  // pass only.
  torch::Tensor full_parameter(const torch::Tensor& parameter);
  // Changes the value of a parameter of the module; the same one on every rank. Not
  // collective, and outside of a pass only.
  void set_parameter(const torch::Tensor& parameter, const torch::Tensor& value);
  // Returns whether parameters are whole in forward passes only, in which every rank
  // takes part.
  bool gathers_parameters() const noexcept { return gathers_values_; }
  // Returns the most bytes of parameters that were whole at a time at stage 3.
  std::int64_t peak_gathered_bytes() const noexcept;

  // The pieces of the flat buffers that this rank changes after a step: whole ones, or
  // its shards, in which alone the gradients are sums then.
  const std::vector<Shard>& owned() const noexcept { return owned_; }

  // Returns whether owned() are shards.
  bool shards_update() const noexcept { return shards_; }

  // Stage 3: the parameters that are not trained lie in buffers of their own, of which
  // this rank has shards. Empty before it.
  const std::vector<Parameter>& frozen() const noexcept { return frozen_; }
  const std::vector<Group>& frozen_layout() const noexcept { return frozen_layout_; }
  const std::vector<Shard>& frozen_owned() const noexcept { return frozen_owned_; }
  torch::Tensor frozen_values(std::size_t index);  // of frozen_owned()[index]

  // Return the elements of owned()[index], as one flat tensor.
  torch::Tensor owned_values(std::size_t index);
  torch::Tensor owned_gradients(std::size_t index);

  // Call it when the values in owned()[index] have been changed: they start on their
  // way to the ranks that do not change them themselves. In the same order on every
  // rank.
  void updated(std::size_t index);
  // Waits for them; call it before the next forward pass, unless that runs in forward()
  // and its units in run_unit(): these wait for what they need.
  void wait_for_values();

  // Makes gradients whole where they are sums in shards only, for a caller that looks.
  // Not from stage 2 on, where visit_gradients() shows them one bucket at a time.
  void gather_gradients();
  // Shows every gradient, as a whole, after finish(). Collective.
  using Visit = std::function<void(std::size_t parameter, const torch::Tensor&)>;
  void visit_gradients(const Visit& visit);

  // Returns the order in which the parameters lie in the buffers, by index.
  const std::vector<std::size_t>& order() const noexcept { return order_; }

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

  // Runs a backward pass of a caller that computes gradients without autograd:
  // `compute` puts them into the sink, which is this pass's alone. It is like
  // loss.backward() otherwise: in no_sync() they only accumulate, and what it throws
  // leaves the pass to finish(). Passes of both kinds may follow each other in one
  // step, but with gradient_as_bucket_view only.
  void backward(const std::function<void(GradientSink&)>& compute);

  // Ends a backward pass: waits for what is under way, and takes part with zeros in
  // what this rank has not reached. Does nothing if that has been done in this step and
  // no pass has begun since, so it may always be called (and a rank without samples
  // takes part in one pass of a step, not in several); it must be where no backward
  // pass has been (a rank without samples), where one ended with an exception (the sums
  // are worthless then, but no other rank waits for ever), and after each one where
  // backward() itself does not wait (above). Throws Fault::config, on every rank, for
  // unused parameters; on GPUs of several ranks one step late. With `failed` this
  // rank's gradients are not complete, so what it has not used says nothing.
  void finish(bool failed = false);

  // Begins a step, on every rank. Gradients are written over by its first backward
  // pass, not now: until then they are undefined, and the flat buffers hold those of
  // before. `passes` is the number of backward passes that exchange, the same on every
  // rank, for a loop whose ranks may make fewer (stage 2): finish() takes part in those
  // that this rank has not made.
  void zero_gradients(std::int64_t passes = 1);

  // From stage 2 on: waits for the sums of the backward pass before this one, which
  // has not waited itself (waits_in_backward). Does nothing otherwise.
  void end_pass();
  bool sums_every_pass() const noexcept { return pools_; }
  // Takes part in a backward pass of the other ranks with zeros, and waits for the sums
  // as backward() does. Does nothing where finish() does so for all of a step.
  void empty_pass();

  // Returns the parameters that no rank has used in this step; their gradients are
  // zero. Empty unless find_unused_parameters is set.
  const std::vector<std::size_t>& globally_unused() const noexcept;

  // Gives every rank rank 0's buffers (running statistics, say).
  void broadcast_buffers();

  // Returns the times of the last finished pass, on the clock of the host.
  const ExchangeTimes& host_times() const noexcept { return times_; }

  // While a CUDA graph captures a pass: nothing is timed, and ranks do not tell each
  // other what they use, which is the same in every replay. captured_unused() is what
  // this rank alone has not used in it.
  void set_captured(bool captured) noexcept;
  const std::vector<std::size_t>& captured_unused() const noexcept;
  // Call it when a captured pass ended with an exception: none of it has run anywhere,
  // so no rank waits for this one's part.
  void forget_captured() noexcept;

  // Returns the times on the clock of the device: on a GPU those of the step before, so
  // that nothing waits.
  const ExchangeTimes& times() const noexcept override {
    return data_.device().is_cpu() ? times_ : device_times_;
  }
  void observe(ExchangeObserver* observer) noexcept override;

 private:
  class Sink;
  // Lives as long as autograd knows what to call at the end of the pass.
  struct Pass {};

  void check_stage_supported() const;
  void assign_units();
  void lay_out();
  void make_units(const std::vector<Group>& groups);
  void lay_out_frozen();
  void fill();
  RankIndex rank_index() { return {sharers().rank(), sharers().size()}; }
  void start_sums_of(std::size_t unit);
  void free_full_bucket();
  void begin_units();
  void end_units();
  comm::Pending gather(const torch::Tensor& flat, const Shard& shard);
  void broadcast_frozen();
  void find_values_of_uses();
  void wait_for_values_of(std::size_t use);
  void wait_for_value(std::size_t index);

  void begin();
  void begin_by_gradient();
  void refuse_second_pass() const;
  [[noreturn]] void refuse_second_gradient(std::size_t parameter) const;
  [[noreturn]] void refuse_late_gradient(std::size_t parameter) const;
  void before(std::size_t parameter);
  void make_way(std::size_t parameter);
  void after(std::size_t parameter);
  void arrived(std::size_t parameter);
  void end_of_backward();
  void complete(bool excused);
  void finish_passes(bool failed);
  void keep_view(std::size_t parameter);
  void collect(const std::vector<std::size_t>& parameters);
  void move_into_bucket(const std::vector<std::size_t>& parameters);
  void put_gradients_back();

  torch::nn::Module& module_;
  comm::Communicator& data_;
  comm::Communicator& cpu_;
  const EngineOptions options_;
  // Where groups have shards: this rank's group, and the ranks with its shard.
  std::unique_ptr<comm::Communicator> within_, across_;
  std::vector<Parameter> parameters_;
  const std::vector<torch::Tensor> tensors_;  // of the parameters
  std::unordered_map<const c10::TensorImpl*, std::size_t> index_of_;  // of tensors_
  std::vector<std::size_t> order_;
  const bool shards_;          // of gradients, each rank has the sums of its own
  const bool pools_;           // and these only: buckets live for a while
  const bool gathers_values_;  // and values: units are whole for a while
  const bool collects_;        // gradients come into the bucket when it is sent
  // If set, waiting in a backward pass could keep another rank's from running.
  const bool peers_share_autograd_;
  std::unique_ptr<detail::UseTracker> use_;
  std::unique_ptr<comm::Communicator> gathers_;  // of values, beside the sums
  std::unique_ptr<detail::UnitPlan> plan_;
  std::unique_ptr<detail::ShardedValues> values_;
  std::vector<Parameter> frozen_;
  std::vector<Group> frozen_layout_;
  std::vector<Shard> frozen_owned_;
  std::size_t first_frozen_bucket_ = 0;         // of values_
  std::shared_ptr<detail::UnitGathers> units_;  // graphs look whether it is there
  std::vector<std::optional<std::size_t>>
      last_of_unit_;                        // parameter whose turn is last
  std::optional<std::size_t> full_bucket_;  // that full_parameter() has gathered
  std::unique_ptr<detail::FlatBuffers> buffers_;
  std::unique_ptr<detail::Exchange> exchange_;
  std::vector<Shard> owned_;
  std::vector<comm::Pending> travelling_;  // values, by index in owned()
  std::vector<char> travels_;              // whether these have not been waited for
  // Before stage 3, by use, and at the end of what is in no unit: where values of the
  // parameters are, by index in owned().
  std::vector<std::vector<std::size_t>> values_of_use_;
  ExchangeObserver* observer_ = nullptr;

  bool sync_ = true;
  bool running_ = false;      // between the first gradient of a pass and its finish()
  bool ended_ = false;        // the backward pass itself is over
  bool finished_ = false;     // since zero_gradients()
  std::weak_ptr<Pass> pass_;  // gone, and not ended_: it failed
  std::int64_t passes_ = 1;   // of a step
  std::int64_t passes_done_ = 0;  // of these
  ExchangeTimes times_, device_times_;
  std::unique_ptr<detail::GradientHooks> hooks_;  // last: no callback may come after it
};

}  // namespace lockstep::parallel
