#include "lockstep/train/attempts.h"

#include <optional>
#include <string_view>

#include <fmt/format.h>

#include <c10/util/Exception.h>

#include "lockstep/base/error.h"
#include "lockstep/base/library_error.h"
#include "lockstep/base/log.h"
#include "lockstep/memory/out_of_memory.h"
#include "lockstep/parallel/sync_batch_norm.h"

namespace lockstep::train {
namespace {

using run::Phase;

// Returns whether the error is autograd's report of a NaN (train.anomaly), which has no
// type of its own.
bool is_anomaly(const std::exception& error) {
  return std::string_view(error.what()).find(" returned nan values in its ") !=
         std::string_view::npos;
}

// Logs the first line of a warning only: autograd's anomaly warning has the stack
// frames of the forward pass below it.
class OneLineWarnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    const auto& text = warning.msg();
    log::warning("train", text.substr(0, text.find('\n')));
  }
};

}  // namespace

Attempts::Attempts(const Parts& parts)
    : parts_(parts),
      recovery_({.config = parts.memory,
                 .model = parts.model,
                 .device = parts.world.data().device(),
                 .micro_batch = parts.step.micro_batch()}) {}

const std::vector<comm::Ballot>& Attempts::compute(const data::Batch& batch,
                                                   const NextStep& next,
                                                   const Tell& tell) {
  const auto [steps, loss_scale] = next;
  auto& votes = parts_.world.votes();
  for (bool first = true;; first = false) {
    const bool is_new = shapes_.is_new(batch, parts_.step.micro_batch());
    if (parts_.world.size() > 1) parts_.reporter.beat(steps, Phase::exchanging);
    recovery_.begin(parts_.tally);
    // A rank that fails here has left the others.
    parts_.strategy.begin_step(parts_.step.num_passes(batch));
    parts_.reporter.beat(steps, is_new ? Phase::warming_up : Phase::training);
    parts_.profiler.end_phase(waiting());  // for buffers of rank 0
    const bool fits = attempt(batch, steps, loss_scale);
    auto ballot = tell();
    if (!fits) ballot.flags |= comm::kOutOfMemory;
    votes.cast(ballot);
    if (parts_.world.size() > 1) parts_.reporter.beat(steps, Phase::exchanging);
    parts_.strategy.finish(/*failed=*/!fits);
    const auto& ballots = votes.count();
    parts_.profiler.end_phase(waiting());
    if ((comm::Votes::any(ballots) & comm::kOutOfMemory) != 0) {
      if (parts_.graph.release()) {
        recovery_.put_back(parts_.tally);
        if (parts_.world.rank() == 0) {
          log::warning("train",
                       "CUDA graphs released their memory: kernels are launched "
                       "eagerly from here on");
        }
      } else {
        recover(ballots, steps);
      }
      continue;
    }
    if (first) note_success(steps);
    weights_ = comm::Votes::sum_of_weights(ballots);  // of the next batch
    return ballots;
  }
}

// A single rank has no other to wait for.
profile::Profiler::Phase Attempts::waiting() const {
  return parts_.world.data().size() > 1 ? profile::Profiler::Phase::communication
                                        : profile::Profiler::Phase::backward;
}

bool Attempts::is_held(const data::Batch& batch, std::int64_t steps) {
  if (parts_.profiler.is_profiling()) return false;  // the profiler looks inside
  return parts_.graph.takes(batch, steps, weights_);
}

const std::vector<comm::Ballot>& Attempts::replay(const data::Batch& batch,
                                                  std::int64_t steps,
                                                  const Tell& tell) {
  auto& votes = parts_.world.votes();
  parts_.reporter.beat(steps, Phase::training);
  parts_.graph.passes(batch, steps, weights_);
  votes.cast(tell());
  if (parts_.world.size() > 1) parts_.reporter.beat(steps, Phase::exchanging);
  const auto& ballots = votes.count();
  parts_.profiler.end_phase(waiting());
  note_success(steps);
  weights_ = comm::Votes::sum_of_weights(ballots);  // of the next batch
  return ballots;
}

void Attempts::note_success(std::int64_t steps) {
  if (!recovery_.succeeded()) return;
  parts_.step.set_micro_batch(recovery_.micro_batch());
  log::info("train", fmt::format("micro-batches of {} again, from step {} on",
                                 recovery_.micro_batch(), steps + 2));
}

bool Attempts::attempt(const data::Batch& batch, std::int64_t steps,
                       double loss_scale) {
  // A layer that waits for other ranks would wait for ever for one that gave up.
  const bool may_fail = recovery_.is_on() && !parts_.strategy.passes_must_match();
  OneLineWarnings handler;
  std::optional<c10::WarningUtils::WarningHandlerGuard> one_line;
  if (parts_.anomaly) one_line.emplace(&handler);
  try {
    parts_.step.backward(batch, parts_.tally, {loss_scale, steps, weights_});
    return true;
  } catch (const std::exception& error) {
    if (is_anomaly(error)) {
      throw Error(Fault::diverged, "train: ", first_line_of(error), " (step ",
                  steps + 1, ", rank ", parts_.world.rank(),
                  ", found by train.anomaly); lower optim.lr, or look at what that "
                  "function gets");
    }
    if (!may_fail || !memory::is_out_of_memory(error)) throw;
    log::warning("train", fmt::format("out of memory in step {}: {}", steps + 1,
                                      first_line_of(error)));
    return false;
  }
}

void Attempts::recover(const std::vector<comm::Ballot>& ballots, std::int64_t steps) {
  memory::Recovery::Shortage shortage{.step = steps};
  for (std::size_t rank = 0; rank < ballots.size(); ++rank) {
    if ((ballots[rank].flags & comm::kOutOfMemory) != 0) {
      shortage.ranks.push_back(static_cast<int>(rank));
    }
  }
  RankWindow own;
  own.memory = memory::memory_of(parts_.world.data().device());
  for (const auto& rank : gather(own, parts_.world.cpu())) {
    shortage.memory.push_back(rank.memory);
  }
  const auto remedy = recovery_.after(shortage, parts_.tally);
  parts_.step.set_micro_batch(recovery_.micro_batch());
  const bool differs = parallel::has_batch_norm(parts_.model) && !told_of_batch_norm_;
  told_of_batch_norm_ = true;
  parts_.reporter.out_of_memory(
      {.step = steps + 1,
       .rank = shortage.ranks[0],
       .remedy = remedy,
       .note = differs ? "; batch normalisation sees these, so results differ from "
                         "those with more memory"
                       : ""});
}

}  // namespace lockstep::train
