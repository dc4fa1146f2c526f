#include "lockstep/data/loader.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/config/run_length.h"
#include "lockstep/data/detail/filler.h"

namespace lockstep::data {
namespace {

constexpr std::int64_t kNever = -1;

// The ranks' shares of batches from number `from` on.
struct Cut {
  std::int64_t from = 0;              // number of the batch
  std::vector<std::int64_t> offsets;  // sums of the weights: 0, w0, w0 + w1, ...

  std::int64_t begin(int rank, std::int64_t samples) const {
    return samples * offsets[static_cast<std::size_t>(rank)] / offsets.back();
  }
};

Cut cut_by_weights(std::int64_t from, const std::vector<std::int64_t>& weights) {
  Cut cut{from, {0}};
  for (const auto weight : weights) {
    LOCKSTEP_CHECK(weight >= 0 && weight <= Loader::kLargestWeight, weight);
    cut.offsets.push_back(cut.offsets.back() + weight);
  }
  LOCKSTEP_CHECK(cut.offsets.back() > 0);
  return cut;
}

// The share of a rank in a global batch.
struct Share {
  std::int64_t first = 0, size = 0, largest = 0;
};

detail::Filler::Options filler_options(const LoaderOptions& options) {
  return {.order = {.shuffle = options.shuffle,
                    .weighted = options.weighted,
                    .seed = options.seed},
          .mixing = options.mixing,
          .skip_bad = options.skip_bad};
}

}  // namespace

std::int64_t samples_per_epoch(std::int64_t num_samples, const LoaderOptions& options) {
  return config::samples_per_epoch(
      num_samples, {options.batch, options.drop_last, options.limit_batches});
}

class Loader::Impl {
 public:
  Impl(const Dataset& dataset, const LoaderOptions& options)
      : dataset_(dataset),
        options_(options),
        epoch_samples_(data::samples_per_epoch(dataset.size(), options)),
        filler_(dataset, filler_options(options)) {
    LOCKSTEP_CHECK(options.batch > 0 && options.workers > 0 && options.prefetch > 0);
    LOCKSTEP_CHECK(options.rank >= 0 && options.rank < options.ranks);
    LOCKSTEP_CHECK(options.start.consumed >= 0);
    batches_per_epoch_ = (epoch_samples_ + options.batch - 1) / options.batch;
    // A position inside an epoch need not be a multiple of the batch: the rest of the
    // epoch is cut into batches from there.
    const auto left =
        std::max<std::int64_t>(epoch_samples_ - options.start.consumed, 0);
    first_epoch_batches_ = (left + options.batch - 1) / options.batch;
    if (options.epochs) {
      end_ = first_epoch_batches_ + (*options.epochs - 1) * batches_per_epoch_;
    }
    cuts_.push_back(cut_by_weights(
        0, std::vector<std::int64_t>(static_cast<std::size_t>(options.ranks), 1)));
    make_slots();
    start_workers();
  }

  void reshare(std::int64_t from, const std::vector<std::int64_t>& weights) {
    const std::lock_guard lock(mutex_);
    LOCKSTEP_CHECK(from >= started_, "batch ", from, " is filled already: ", started_);
    LOCKSTEP_CHECK(static_cast<int>(weights.size()) == options_.ranks);
    cuts_.push_back(cut_by_weights(from, weights));
    // Batches that are being filled are not older than the one in use.
    while (cuts_.size() > 1 && cuts_[1].from <= current_) cuts_.erase(cuts_.begin());
  }

  const Batch* next() {
    std::unique_lock lock(mutex_);
    current_ += 1;
    room_.notify_all();  // the slot of the batch before is free again
    if (end_ != kNever && current_ >= end_) return nullptr;
    auto& slot = slot_of(current_);
    const auto is_ready = [&] { return slot.ready == current_ || fails(current_); };
    if (!is_ready()) {
      const auto begin = Clock::system().now();
      filled_.wait(lock, is_ready);
      waited_seconds_ += seconds_between(begin, Clock::system().now());
    }
    if (slot.ready != current_) std::rethrow_exception(failure_);
    return &slot.current();
  }

  bool is_ready() {
    const std::lock_guard lock(mutex_);
    const auto number = current_ + 1;
    if (end_ != kNever && number >= end_) return true;
    return slot_of(number).ready == number || fails(number);
  }

  const Batch* peek() {
    const std::lock_guard lock(mutex_);
    const auto number = current_ + 1;
    if (end_ != kNever && number >= end_) return nullptr;
    const auto& slot = slot_of(number);
    return slot.ready == number ? &slot.current() : nullptr;
  }

  double waited_seconds() const noexcept { return waited_seconds_; }
  int num_workers() const noexcept { return options_.workers; }
  std::int64_t ring_size() const { return static_cast<std::int64_t>(slots_.size()); }
  std::int64_t num_skipped() const noexcept { return filler_.num_skipped(); }
  std::int64_t samples_per_epoch() const noexcept { return epoch_samples_; }

 private:
  // Batches before the one that failed were begun before it, and arrive. The mutex is
  // held.
  bool fails(std::int64_t number) const { return failure_ && number >= failed_at_; }

  detail::BatchSlot& slot_of(std::int64_t number) {
    return slots_[static_cast<std::size_t>(number) % slots_.size()];
  }

  // The destructor of a jthread asks it to stop and joins it, also when this throws.
  void start_workers() {
    try {
      for (int i = 0; i < options_.workers; ++i) {
        workers_.emplace_back([this](const std::stop_token& stop) { work(stop); });
      }
    } catch (const std::system_error& error) {
      throw Error(Fault::hardware, "data.workers: thread ", workers_.size() + 1, " of ",
                  options_.workers, " could not be started: ", error.what(),
                  "; lower data.workers or raise the limit (ulimit -u)");
    }
  }

  void make_slots() {
    auto kind = filler_.slot_kind();
    kind.pinned = options_.pin_memory;
    const auto global = std::min(options_.batch, dataset_.size());
    for (int i = 0; i <= options_.prefetch; ++i) {
      slots_.emplace_back(dataset_.spec(), kind)
          .reserve((global + options_.ranks - 1) / options_.ranks);
    }
  }

  // Returns the share by the last cut that applies to a batch.
  Share share_of(std::int64_t number, std::int64_t global) {
    const std::lock_guard lock(mutex_);
    auto at = cuts_.size() - 1;
    while (at > 0 && cuts_[at].from > number) --at;
    const auto& cut = cuts_[at];
    Share share{.first = cut.begin(options_.rank, global)};
    share.size = cut.begin(options_.rank + 1, global) - share.first;
    for (int r = 0; r < options_.ranks; ++r) {
      share.largest =
          std::max(share.largest, cut.begin(r + 1, global) - cut.begin(r, global));
    }
    return share;
  }

  // Returns epoch and first sample of batch `number`.
  Position position_of(std::int64_t number) const {
    if (number < first_epoch_batches_) {
      return {options_.start.epoch, options_.start.consumed + number * options_.batch};
    }
    const auto after = number - first_epoch_batches_;
    return {options_.start.epoch + 1 + after / batches_per_epoch_,
            after % batches_per_epoch_ * options_.batch};
  }

  void work(const std::stop_token& stop) {
    while (true) {
      std::int64_t number = 0;
      {
        std::unique_lock lock(mutex_);
        // A batch may be started when its slot holds neither the batch in use nor one
        // that is still wanted.
        room_.wait(lock, stop, [&] {
          return failure_ || (end_ != kNever && started_ >= end_) ||
                 started_ < std::max<std::int64_t>(current_, 0) + ring_size();
        });
        if (stop.stop_requested() || failure_) return;
        if (end_ != kNever && started_ >= end_) return;
        number = started_++;
      }
      fill_or_note(number);
    }
  }

  void fill_or_note(std::int64_t number) {
    std::exception_ptr failure;
    try {
      fill(number);
    } catch (...) {
      failure = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      if (!failure) {
        slot_of(number).ready = number;
      } else if (!failure_ || number < failed_at_) {
        failure_ = failure;
        failed_at_ = number;
      }
    }
    filled_.notify_all();
  }

  void fill(std::int64_t number) {
    auto& slot = slot_of(number);
    const Position begin = position_of(number);
    const auto global = std::min(options_.batch, epoch_samples_ - begin.consumed);
    const auto share = share_of(number, global);
    auto& batch = slot.view(share.size);
    filler_.fill(slot, {.epoch = begin.epoch,
                        .first = begin.consumed + share.first,
                        .size = share.size});
    slot.pad();
    batch.begin = begin;
    batch.global_size = global;
    batch.first = share.first;
    batch.largest_size = share.largest;
    batch.ends_epoch = begin.consumed + global == epoch_samples_;
  }

  const Dataset& dataset_;
  const LoaderOptions options_;
  const std::int64_t epoch_samples_;
  detail::Filler filler_;
  std::int64_t batches_per_epoch_ = 0;
  std::int64_t first_epoch_batches_ = 0;
  std::int64_t end_ = kNever;  // number of batches in all
  std::vector<Cut> cuts_;      // by `from`; guarded by mutex_
  // Batch b lives in slot b % ring size.
  std::vector<detail::BatchSlot>
      slots_;  // `ready` guarded by mutex_; the rest belongs to one side

  std::mutex mutex_;
  std::condition_variable_any room_;  // wakes up for a stop, too
  std::condition_variable filled_;
  std::int64_t started_ = 0;           // batches that workers took; guarded by mutex_
  std::int64_t current_ = -1;          // the batch in use; guarded by mutex_
  std::exception_ptr failure_;         // of batch failed_at_; guarded by mutex_
  std::int64_t failed_at_ = 0;         // guarded by mutex_
  double waited_seconds_ = 0;          // of the consumer's thread
  std::vector<std::jthread> workers_;  // last: joined before the rest goes
};

Loader::Loader(const Dataset& dataset, const LoaderOptions& options)
    : impl_(std::make_unique<Impl>(dataset, options)) {}

Loader::~Loader() = default;

const Batch* Loader::next() {
  return impl_->next();
}

void Loader::reshare(std::int64_t from, std::vector<std::int64_t> weights) {
  impl_->reshare(from, weights);
}

std::int64_t Loader::prefetch_depth() const noexcept {
  return impl_->ring_size();
}

bool Loader::is_ready() const {
  return impl_->is_ready();
}

const Batch* Loader::peek() const {
  return impl_->peek();
}

double Loader::waited_seconds() const noexcept {
  return impl_->waited_seconds();
}

int Loader::num_workers() const noexcept {
  return impl_->num_workers();
}

std::int64_t Loader::num_skipped() const noexcept {
  return impl_->num_skipped();
}

std::int64_t Loader::samples_per_epoch() const noexcept {
  return impl_->samples_per_epoch();
}

}  // namespace lockstep::data
