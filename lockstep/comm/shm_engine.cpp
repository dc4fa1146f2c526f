#include "lockstep/comm/detail/shm_engine.h"

#include <pthread.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::comm::detail {
namespace {

// A peer that dies rings no bell, so no rank sleeps longer than this.
constexpr std::chrono::milliseconds kMoment{50};

}  // namespace

Engine::Engine(const ShmOptions& options, const Tell& tell)
    : board_(options, tell), mail_(board_) {
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  ::pthread_setname_np(thread_.native_handle(), "lockstep_shm");
}

Engine::~Engine() {
  thread_.request_stop();
  signal();
  board_.bell().ring();  // it may sleep there
  thread_.join();
  board_.own().left.store(1, std::memory_order_release);
  board_.bell().ring();
}

void Engine::signal() noexcept {
  signals_.fetch_add(1);
  signals_.notify_one();
}

std::shared_ptr<Operation> Engine::start(const Call& call,
                                         std::optional<BufferPlace> place) {
  std::shared_ptr<Operation> operation;
  if (board_.failed()) {
    // Nothing is begun any more, also where the others would still take part.
    operation = std::make_shared<Operation>(board_, call);
    operation->fail(board_.failure_text());
    return operation;
  }
  {
    const std::lock_guard lock(inbox_mutex_);
    if (call.kind == Kind::send || call.kind == Kind::recv) {
      operation = new_messages_.emplace_back(std::make_shared<Operation>(board_, call));
    } else {
      auto collective = std::make_shared<Collective>(
          board_, call, Collective::Numbered{next_number_++, std::move(place)});
      new_collectives_.push_back(collective);
      unannounced_.push_back(collective);
      announce_due();
      operation = std::move(collective);
    }
  }
  // A small collective is given to the others at once: no thread has to wake up.
  if (!try_inline()) signal();
  return operation;
}

// The place of an announcement is free again once all have finished its collective.
void Engine::announce_due() {
  while (!unannounced_.empty()) {
    const auto number = unannounced_.front()->number();
    if (number > kMostAnnounced &&
        !board_.all_at(&Slot::finished, number - kMostAnnounced)) {
      return;
    }
    unannounced_.front()->announce();
    unannounced_.pop_front();
  }
}

// Takes over the calls that start() has left, and announces those that had to wait.
void Engine::accept() {
  const std::lock_guard lock(inbox_mutex_);
  for (auto& collective : new_collectives_) collectives_.push_back(collective);
  for (auto& message : new_messages_) mail_.post(message);
  new_collectives_.clear();
  new_messages_.clear();
  announce_due();
}

// Does one step at most of a small collective. Returns true if no rank waits for more
// from this one.
bool Engine::try_inline() {
  const Lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  accept();
  constexpr std::size_t kLittleBytes = 64 << 10;
  if (!mail_.empty()) mail_.advance();
  if (collectives_.size() > 1 || !mail_.empty()) return false;
  if (collectives_.empty()) return true;
  const auto collective = collectives_.front();
  if (collective->call.out[0].nbytes() > kLittleBytes) return false;
  advance();
  return collective->is_given();
}

bool Engine::advance() {
  bool moved = !mail_.empty() && mail_.advance();
  if (collectives_.empty()) return moved;
  const auto collective = collectives_.front();
  if (!collective->has_begun()) collective->begin(next_round_);
  try {
    moved |= collective->advance();
  } catch (const Error& error) {
    // The ranks' calls do not fit together: all of them find that.
    collective->error = error;
    collective->finish();
    board_.fail(Failure::different, board_.rank());
    collectives_.pop_front();
    return true;
  }
  if (!collective->done) return moved;
  next_round_ = collective->next_round();
  collectives_.pop_front();
  board_.own().finished.store(collective->number(), std::memory_order_release);
  board_.bell().ring();
  return true;
}

bool Engine::has_work() {
  if (!collectives_.empty() || !mail_.empty()) return true;
  const std::lock_guard lock(inbox_mutex_);
  return !new_collectives_.empty() || !new_messages_.empty();
}

// Does a step, or sleeps until another rank has done something.
void Engine::step(Lock& lock, std::optional<Clock::time_point> deadline) {
  const auto rung = board_.bell().rung.load(std::memory_order_seq_cst);
  accept();
  if (advance()) return;
  if (board_.failed()) return fail_all();
  lock.unlock();
  board_.bell().sleep(rung, kMoment);
  lock.lock();
  check_peers(deadline);
}

std::vector<int> Engine::missing() const {
  return collectives_.empty() ? mail_.missing() : collectives_.front()->missing();
}

void Engine::check_peers(std::optional<Clock::time_point> deadline) {
  const auto now = Clock::now();
  const bool late = deadline && now >= *deadline;
  if (now < next_check_ && !late) return;
  next_check_ = now + kMoment;
  const auto ranks = missing();
  for (const int rank : ranks) {
    const auto lost = board_.is_lost(rank);
    // It may have done its part and then ended.
    if (!lost || advance()) continue;
    return board_.fail(*lost, rank);
  }
  if (!late || ranks.empty() || advance()) return;
  std::vector<std::string> names;
  for (const int rank : ranks) names.push_back(str("rank ", rank));
  timeout_text_ = str(text::join(names, ", "), " did not take part within ",
                      board_.options().timeout.count(), " ms");
  board_.fail(Failure::timeout, ranks[0]);
}

void Engine::fail_all() {
  const auto why = timeout_text_.empty() ? board_.failure_text() : timeout_text_;
  for (const auto& collective : collectives_) collective->fail(why);
  collectives_.clear();
  mail_.fail(why);
}

void Engine::wait(Operation& operation) {
  const auto deadline = Clock::now() + board_.options().timeout;
  if (!operation.done.load(std::memory_order_acquire)) {
    ++waiting_;
    Lock lock(mutex_);
    while (!operation.done.load(std::memory_order_acquire)) step(lock, deadline);
    --waiting_;
    const bool rest = has_work();
    lock.unlock();
    if (rest) signal();
  }
  if (operation.error) throw *operation.error;
}

bool Engine::is_done(const Operation& operation) {
  if (operation.done.load(std::memory_order_acquire)) return true;
  const Lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  accept();
  if (!advance() && board_.failed()) fail_all();
  return operation.done.load(std::memory_order_acquire);
}

void Engine::abort() noexcept {
  board_.fail(Failure::aborted, board_.rank());
}

void Engine::run(const std::stop_token& stop) {
  Lock lock(mutex_);
  while (!stop.stop_requested()) {
    const auto seen = signals_.load();
    if (waiting_.load() == 0 && has_work()) {
      step(lock, std::nullopt);
      continue;
    }
    lock.unlock();
    if (!stop.stop_requested()) signals_.wait(seen);
    lock.lock();
  }
}

}  // namespace lockstep::comm::detail
