#include "lockstep/train/progress.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lockstep/base/log.h"
#include "lockstep/base/text.h"

namespace lockstep::train {
namespace {

// Fewer steps than this say nothing about which rank is slow.
constexpr std::int64_t kFewestSteps = 5;

std::vector<double> each(const std::vector<RankWindow>& ranks,
                         double (*number)(const RankWindow&)) {
  std::vector<double> list;
  for (const auto& rank : ranks) list.push_back(number(rank));
  return list;
}

}  // namespace

Progress::Progress(const Parts& parts)
    : watch_(parts.watch),
      world_(parts.world),
      reporter_(parts.reporter),
      loader_(parts.loader) {
  if (parts.parallel.balance && world_.size() > 1) balance_.emplace(world_.size());
}

void Progress::step(const data::Batch& batch, const parallel::ExchangeTimes* times) {
  steps_ += 1;
  batches_ += 1;
  window_.samples += batch.size;
  if (times == nullptr) return;
  window_.compute_seconds += times->last_ready;
  window_.exchange_wait_seconds += times->waited;
}

TrainReport Progress::report(const At& at, task::Tally& tally) {
  window_.data_wait_seconds = loader_.waited_seconds() - waited_before_;
  window_.memory = at.memory ? *at.memory : memory::memory_of(world_.data().device());
  const auto passes = at.passes.value_or(profile::Profiler::Passes());
  window_.forward_seconds = passes.forward;
  window_.backward_seconds = passes.backward;
  auto means = world_.size() == 1 ? tally.means() : tally.means(world_.cpu());
  // All steps since the last report were skipped: 0 would look like a loss.
  if (means.count == 0) {
    means.loss = std::nan("");
    for (auto& one : means.values) one.value = std::nan("");
  }
  const auto now = Clock::system().now();
  TrainReport report{.step = at.step,
                     .total_steps = at.total_steps,
                     .epoch = at.epoch,
                     .means = means,
                     .targets_per_sample = at.targets_per_sample,
                     .targets_are_tokens = at.targets_are_tokens,
                     .lr = at.lr,
                     .gradient_norm = at.gradient_norm,
                     .seconds = std::max(seconds_between(begin_, now), 1e-9),
                     .steps = steps_,
                     .backend = std::string(world_.data().backend()),
                     .is_modelled = world_.data().traits().is_modelled,
                     .ranks = gather(window_, world_.cpu())};
  report.straggler = find_straggler(report.ranks);
  reporter_.train(report);
  warn_of_waiting(report);
  warn_of_skipped();
  judge(report);
  tally.reset();
  waited_before_ = loader_.waited_seconds();
  window_ = {};
  steps_ = 0;
  begin_ = now;
  return report;
}

// Training that waits for its data is slower than it could be.
void Progress::warn_of_waiting(const TrainReport& report) const {
  const auto waited = window_.data_wait_seconds;
  if (waited < 0.1 || waited < 0.1 * report.seconds) return;
  log::warning("data",
               fmt::format("loader waited {:.0f} ms of the last {:.1f} s; raise "
                           "data.workers (now {})",
                           1e3 * waited, report.seconds, loader_.num_workers()));
}

void Progress::warn_of_skipped() {
  const auto skipped = loader_.num_skipped();
  if (skipped == skipped_before_) return;
  log::warning("data",
               fmt::format("{} bad samples were replaced since the last report, "
                           "{} in all (data.on_bad_sample is skip)",
                           skipped - skipped_before_, skipped));
  skipped_before_ = skipped;
}

// Reports may be as short as a step: those of a few are judged together.
void Progress::judge(const TrainReport& report) {
  period_.steps += report.steps;
  period_.seconds += report.seconds;
  period_.ranks.resize(report.ranks.size());
  for (std::size_t r = 0; r < report.ranks.size(); ++r) {
    auto& sum = period_.ranks[r];
    sum.data_wait_seconds += report.ranks[r].data_wait_seconds;
    sum.compute_seconds += report.ranks[r].compute_seconds;
    sum.samples += report.ranks[r].samples;
  }
  if (period_.steps < kFewestSteps) return;
  auto all = report;
  all.steps = period_.steps;
  all.seconds = period_.seconds;
  all.ranks = std::move(period_.ranks);
  all.straggler = find_straggler(all.ranks);
  period_ = {};
  name_straggler(all);
  balance(all);
}

void Progress::name_straggler(const TrainReport& report) const {
  if (!report.straggler) return;
  const auto& late = *report.straggler;
  const auto bound = watch_.straggler;
  if (bound >= 1 || late.late_seconds <= bound * report.seconds) return;
  reporter_.straggler(report);
}

// All ranks see the same numbers, so they come to the same shares.
void Progress::balance(const TrainReport& report) {
  if (!balance_) return;
  const auto weights = balance_->observe(
      each(report.ranks, [](const RankWindow& rank) { return rank.compute_seconds; }),
      each(report.ranks,
           [](const RankWindow& rank) { return static_cast<double>(rank.samples); }));
  if (!weights) return;
  loader_.reshare(batches_ + loader_.prefetch_depth(), *weights);
  std::vector<std::string> shares;
  std::int64_t sum = 0;
  for (const auto weight : *weights) sum += weight;
  for (const auto weight : *weights) {
    shares.push_back(fmt::format(
        "{:.1f} %", 100 * static_cast<double>(weight) / static_cast<double>(sum)));
  }
  reporter_.balance(report.step, report.step + loader_.prefetch_depth(),
                    text::join(shares, ", "));
}

}  // namespace lockstep::train
