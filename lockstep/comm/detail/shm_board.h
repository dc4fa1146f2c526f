#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/detail/shared_memory.h"
#include "lockstep/comm/shm.h"

// The layout of the memory that the ranks of a shm communicator share. Zeroes are a new
// one, and every word has one rank that writes it unless it says otherwise.
namespace lockstep::comm::detail {

// Collectives that a rank may have announced and another not finished; more wait.
inline constexpr std::uint64_t kMostAnnounced = 64;
// Rounds whose chunks are there at the same time.
inline constexpr std::uint64_t kDepth = 4;
// Chunks of a mailbox.
inline constexpr std::uint64_t kMailDepth = 2;

// A rank's call, as numbers that mean the same in every process.
struct Announcement {
  std::int32_t kind, op, dtype, peer;
  std::int64_t length;  // elements; of all_to_all and uneven parts: bytes it gives
  std::int64_t buffer;  // of empty_buffer(), where the tensor is in one; else -1
  std::int64_t offset;  // in that buffer, in bytes
  std::int32_t line;
  char file[92];  // the end of the path
};

// A collective is cut into rounds, all rounds of all collectives are numbered from 1
// on, and every rank counts how far it is.
struct alignas(64) Slot {
  std::atomic<std::int32_t> pid;
  std::atomic<std::uint32_t> left;       // it will do nothing more
  std::atomic<std::uint64_t> announced;  // collectives
  std::atomic<std::uint64_t> finished;   // collectives
  std::atomic<std::uint64_t> put;        // rounds: its chunk is there
  std::atomic<std::uint64_t> combined;   // rounds: its slice of the sum is there
  std::atomic<std::uint64_t> taken;      // rounds: it needs no chunk any more
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// Counts the blocks of a collective that any rank may carry out: its number (the last
// 32 bits of it) in the upper half, the count in the lower. All ranks write it.
class Tally {
 public:
  // Counts one more of collective `number`, unless there are `most`; returns the count
  // before.
  std::optional<std::uint32_t> add(std::uint32_t number, std::uint32_t most) noexcept;
  std::uint32_t count(std::uint32_t number) const noexcept;

 private:
  std::atomic<std::uint64_t> word_;
};

struct alignas(64) Blocks {
  Tally claimed, done;
};

// A ring of chunks from one rank to another.
struct Mailbox {
  alignas(64) std::atomic<std::uint64_t> sent;   // chunks; by the sender
  alignas(64) std::atomic<std::uint64_t> taken;  // chunks; by the receiver
  struct Header {
    std::int64_t tag;
    std::int64_t message_bytes;  // of all its chunks
  } headers[kMailDepth];
};

// The reason why no rank can go on.
enum class Failure : std::uint32_t { none, aborted, ended, left, timeout, different };

// The shared memory of one communicator.
class Board {
 public:
  Board(const ShmOptions& options, const Tell& tell);

  int rank() const noexcept { return options_.rank; }
  int size() const noexcept { return options_.size; }
  const ShmOptions& options() const noexcept { return options_; }
  std::size_t chunk_bytes() const noexcept { return chunk_bytes_; }
  std::size_t mail_bytes() const noexcept { return mail_bytes_; }

  Bell& bell() const noexcept { return head().bell; }
  Slot& slot(int rank) const noexcept { return slots_[rank]; }
  Slot& own() const noexcept { return slots_[rank()]; }
  Announcement& announcement(int rank, std::uint64_t number) const noexcept;
  Blocks& blocks(std::uint64_t number) const noexcept {
    return blocks_[number % kMostAnnounced];
  }
  char* chunk(int rank, std::uint64_t round) const noexcept;
  Mailbox& mailbox(int from, int to) const noexcept;
  char* mail(int from, int to, std::uint64_t chunk) const noexcept;

  // Returns the ranks whose `count` has not reached `wanted`.
  std::vector<int> behind(std::atomic<std::uint64_t> Slot::*count,
                          std::uint64_t wanted) const;
  bool all_at(std::atomic<std::uint64_t> Slot::*count,
              std::uint64_t wanted) const noexcept;

  // The first failure is that of all ranks; later ones are ignored.
  void fail(Failure failure, int about) noexcept;
  bool failed() const noexcept;
  // Returns "rank 2 (pid 4711) has ended".
  std::string failure_text() const;
  // Returns whether `rank` has ended or left.
  std::optional<Failure> is_lost(int rank) const;

 private:
  struct alignas(64) Head {
    Bell bell;
    std::atomic<std::uint64_t> failure;  // 0; else kind, reporting and failed rank
  };

  Head& head() const noexcept { return *reinterpret_cast<Head*>(memory_.data()); }
  void lay_out(bool for_real);
  void map_together(const Tell& tell);

  ShmOptions options_;
  std::size_t chunk_bytes_ = 0, mail_bytes_ = 0, num_bytes_ = 0;
  SharedMemory memory_;
  Slot* slots_ = nullptr;
  Announcement* announcements_ = nullptr;
  Blocks* blocks_ = nullptr;
  Mailbox* mailboxes_ = nullptr;
  char* mail_ = nullptr;
  char* chunks_ = nullptr;
};

}  // namespace lockstep::comm::detail
