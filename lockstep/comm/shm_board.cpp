#include "lockstep/comm/detail/shm_board.h"

#include <algorithm>

#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/detail/liveness.h"

namespace lockstep::comm::detail {
namespace {

constexpr std::size_t kLine = 64;

// Chunks that stay in a core's cache are faster than large ones.
constexpr std::size_t kChunkBytes = 256 << 10;
constexpr std::size_t kAllChunksBytes = 32 << 20;
constexpr std::size_t kMailBytes = 64 << 10;
constexpr std::size_t kAllMailBytes = 8 << 20;

std::size_t share_of(std::size_t all, std::size_t parts, std::size_t most) {
  const auto share = std::min(most, all / parts);
  return std::max<std::size_t>(4096, share / 4096 * 4096);
}

// Takes memory piece by piece.
class Cursor {
 public:
  explicit Cursor(char* memory) : memory_(memory) {}

  template <typename T>
  T* take(std::size_t count) {
    auto* piece = reinterpret_cast<T*>(memory_ + at_);
    at_ += (count * sizeof(T) + kLine - 1) / kLine * kLine;
    return piece;
  }

  std::size_t num_bytes() const { return at_; }

 private:
  char* memory_;
  std::size_t at_ = 0;
};

}  // namespace

std::optional<std::uint32_t> Tally::add(std::uint32_t number,
                                        std::uint32_t most) noexcept {
  auto seen = word_.load(std::memory_order_acquire);
  while (true) {
    const auto before =
        seen >> 32 == number ? static_cast<std::uint32_t>(seen) : std::uint32_t{0};
    if (before >= most) return std::nullopt;
    if (word_.compare_exchange_weak(seen, std::uint64_t{number} << 32 | (before + 1),
                                    std::memory_order_acq_rel)) {
      return before;
    }
  }
}

std::uint32_t Tally::count(std::uint32_t number) const noexcept {
  const auto seen = word_.load(std::memory_order_acquire);
  return seen >> 32 == number ? static_cast<std::uint32_t>(seen) : 0;
}

Board::Board(const ShmOptions& options, const Tell& tell) : options_(options) {
  const auto ranks = static_cast<std::size_t>(options.size);
  chunk_bytes_ = share_of(kAllChunksBytes, ranks * kDepth, kChunkBytes);
  mail_bytes_ = share_of(kAllMailBytes, ranks * ranks * kMailDepth, kMailBytes);
  lay_out(/*for_real=*/false);
  map_together(tell);
}

void Board::lay_out(bool for_real) {
  const auto ranks = static_cast<std::size_t>(options_.size);
  Cursor cursor(for_real ? memory_.data() : nullptr);
  cursor.take<Head>(1);
  slots_ = cursor.take<Slot>(ranks);
  announcements_ = cursor.take<Announcement>(ranks * kMostAnnounced);
  blocks_ = cursor.take<Blocks>(kMostAnnounced);
  mailboxes_ = cursor.take<Mailbox>(ranks * ranks);
  mail_ = cursor.take<char>(ranks * ranks * kMailDepth * mail_bytes_);
  chunks_ = cursor.take<char>(ranks * kDepth * chunk_bytes_);
  num_bytes_ = cursor.num_bytes();
}

// A rank that fails still meets the others, so that no rank waits for it; then all look
// whether all have come.
void Board::map_together(const Tell& tell) {
  std::optional<Error> problem;
  std::string path;
  try {
    if (rank() == 0) {
      memory_ = SharedMemory::create_nameless(num_bytes_);
      path = SharedMemory::path_for_others(::getpid(), memory_.descriptor()).string();
    }
  } catch (const Error& error) {
    problem = error;
  }
  path = tell(path);
  try {
    if (path.empty()) throw Error(Fault::io, "comm: rank 0 has no memory to share");
    if (rank() != 0) memory_ = SharedMemory::open(path, num_bytes_);
    lay_out(/*for_real=*/true);
    own().pid = static_cast<std::int32_t>(::getpid());
  } catch (const Error& error) {
    if (!problem) problem = error;
  }
  tell("");
  memory_.close_file();
  if (problem) throw *problem;
  for (int r = 0; r < size(); ++r) {
    if (slot(r).pid != 0) continue;
    throw Error(Fault::io, "comm: rank ", r, " cannot map the memory of rank 0; its ",
                "own log says why");
  }
}

Announcement& Board::announcement(int rank, std::uint64_t number) const noexcept {
  return announcements_[static_cast<std::uint64_t>(rank) * kMostAnnounced +
                        number % kMostAnnounced];
}

char* Board::chunk(int rank, std::uint64_t round) const noexcept {
  const auto index = static_cast<std::uint64_t>(rank) * kDepth + round % kDepth;
  return chunks_ + index * chunk_bytes_;
}

Mailbox& Board::mailbox(int from, int to) const noexcept {
  return mailboxes_[from * size() + to];
}

char* Board::mail(int from, int to, std::uint64_t chunk) const noexcept {
  const auto box = static_cast<std::uint64_t>(from * size() + to);
  return mail_ + (box * kMailDepth + chunk % kMailDepth) * mail_bytes_;
}

std::vector<int> Board::behind(std::atomic<std::uint64_t> Slot::*count,
                               std::uint64_t wanted) const {
  std::vector<int> ranks;
  for (int r = 0; r < size(); ++r) {
    if ((slot(r).*count).load(std::memory_order_acquire) < wanted) ranks.push_back(r);
  }
  return ranks;
}

bool Board::all_at(std::atomic<std::uint64_t> Slot::*count,
                   std::uint64_t wanted) const noexcept {
  for (int r = 0; r < size(); ++r) {
    if ((slot(r).*count).load(std::memory_order_acquire) < wanted) return false;
  }
  return true;
}

void Board::fail(Failure failure, int about) noexcept {
  std::uint64_t none = 0;
  const auto word = static_cast<std::uint64_t>(failure) << 48 |
                    static_cast<std::uint64_t>(rank()) << 24 |
                    static_cast<std::uint64_t>(about);
  head().failure.compare_exchange_strong(none, word);
  bell().ring();
}

bool Board::failed() const noexcept {
  return head().failure.load(std::memory_order_acquire) != 0;
}

std::string Board::failure_text() const {
  constexpr std::uint64_t kRankMask = (1U << 24) - 1;
  const auto word = head().failure.load();
  const auto by = static_cast<int>(word >> 24 & kRankMask);
  const auto about = static_cast<int>(word & kRankMask);
  switch (static_cast<Failure>(word >> 48)) {
    case Failure::aborted:
      return str("rank ", by, " aborted");
    case Failure::ended:
      return str("rank ", about, " (pid ", slot(about).pid.load(), ") has ended");
    case Failure::left:
      return str("rank ", about, " has left");
    case Failure::timeout:
      return str("rank ", about, " did not take part within ", options_.timeout.count(),
                 " ms, for which rank ", by, " waited");
    default:
      return "ranks issue different collectives";
  }
}

std::optional<Failure> Board::is_lost(int rank) const {
  if (slot(rank).left.load(std::memory_order_acquire) != 0) return Failure::left;
  if (is_gone(slot(rank).pid.load())) return Failure::ended;
  return std::nullopt;
}

}  // namespace lockstep::comm::detail
