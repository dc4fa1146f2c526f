#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "lockstep/comm/detail/shm_mail.h"

namespace lockstep::comm::detail {

// Carries out the collectives that one rank has started: in a thread of its own, or in
// the caller's while that waits. Collectives run one after the other, in the order of
// start(); messages beside them.
//
// Threads: start() and wait() by one at a time; is_done() and abort() from any.
class Engine {
 public:
  Engine(const ShmOptions& options, const Tell& tell);
  ~Engine();  // others that still wait for this rank are told that it has left
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const Board& board() const noexcept { return board_; }

  // Starts a call and waits for no other rank.
  std::shared_ptr<Operation> start(const Call& call, std::optional<BufferPlace> place);
  void wait(Operation& operation);
  bool is_done(const Operation& operation);
  void abort() noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;

  void run(const std::stop_token& stop);
  void announce_due();
  void accept();
  bool advance();
  bool try_inline();
  void step(Lock& lock, std::optional<Clock::time_point> deadline);
  void check_peers(std::optional<Clock::time_point> deadline);
  void fail_all();
  bool has_work();
  void signal() noexcept;
  std::vector<int> missing() const;

  Board board_;

  std::mutex inbox_mutex_;  // guards these; held for moments only
  std::vector<std::shared_ptr<Collective>> new_collectives_;
  std::vector<std::shared_ptr<Operation>> new_messages_;
  std::deque<std::shared_ptr<Collective>> unannounced_;
  std::uint64_t next_number_ = 1;

  std::mutex mutex_;  // guards these; held for a step
  std::deque<std::shared_ptr<Collective>> collectives_;
  Mail mail_;
  std::uint64_t next_round_ = 1;
  Clock::time_point next_check_{};
  std::string timeout_text_;  // of this rank, when it gave up

  std::atomic<int> waiting_ = 0;            // callers in wait(), who do the work
  std::atomic<std::uint32_t> signals_ = 0;  // watched by the idle thread
  std::jthread thread_;
};

}  // namespace lockstep::comm::detail
