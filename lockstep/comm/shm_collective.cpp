#include "lockstep/comm/detail/shm_collective.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/comm/detail/difference.h"
#include "lockstep/comm/detail/reduce.h"

namespace lockstep::comm::detail {
namespace {

// Small enough that ranks which come late find something left to do.
constexpr std::uint64_t kBlockBytes = 256 << 10;

// Returns whether the lengths that the ranks announce may differ.
bool has_own_length(Kind kind) {
  return kind == Kind::all_to_all || kind == Kind::all_gather_uneven;
}

std::int64_t length_of(const Call& call) {
  if (has_own_length(call.kind)) return static_cast<std::int64_t>(call.in.nbytes());
  return (call.in.defined() ? call.in : call.out[0]).numel();
}

Asked asked_by(const Announcement& a) {
  const auto kind = static_cast<Kind>(a.kind);
  auto text = std::string(name_of(kind));
  if (kind == Kind::all_reduce || kind == Kind::reduce_scatter) {
    text += str("(", name_of(static_cast<Reduce>(a.op)), ")");
  }
  if (kind == Kind::broadcast) text += str(" from rank ", a.peer);
  text += str(" of ", c10::toString(static_cast<torch::Dtype>(a.dtype)));
  if (!has_own_length(kind)) text += str(" with ", a.length, " elements");
  return {text, str(a.file, ":", a.line)};
}

bool alike(const Announcement& a, const Announcement& b) {
  return a.kind == b.kind && a.op == b.op && a.dtype == b.dtype && a.peer == b.peer &&
         (a.length == b.length || has_own_length(static_cast<Kind>(a.kind)));
}

// Returns whether `slice` is the rank's part of `whole`, in the same memory.
bool is_slice(const torch::Tensor& slice, const torch::Tensor& whole, int rank) {
  const auto offset = static_cast<std::size_t>(rank) * slice.nbytes();
  return static_cast<const char*>(slice.const_data_ptr()) ==
         static_cast<const char*>(whole.const_data_ptr()) + offset;
}

}  // namespace

const torch::Tensor* whole_of(const Call& call, int rank) {
  switch (call.kind) {
    case Kind::all_reduce:
      return &call.out[0];
    case Kind::reduce_scatter:
      return is_slice(call.out[0], call.in, rank) ? &call.in : nullptr;
    case Kind::all_gather:
      return is_slice(call.in, call.out[0], rank) ? &call.out[0] : nullptr;
    default:
      return nullptr;
  }
}

void Operation::fail(const std::string& why) {
  error.emplace(Fault::comm, "comm: ", describe(call), " failed on rank ", board.rank(),
                " of ", board.size(), " (shm, ", call.site.file, ":", call.site.line,
                "): ", why);
  finish();
}

Collective::Collective(const Board& board_of_all, const Call& call_of_rank,
                       const Numbered& numbered)
    : Operation(board_of_all, call_of_rank),
      number_(numbered.number),
      place_(numbered.place),
      rounds_(make_rounds(board, call, number_)) {}

void Collective::announce() {
  auto& a = board.announcement(board.rank(), number_);
  a.kind = static_cast<std::int32_t>(call.kind);
  a.op = static_cast<std::int32_t>(call.op);
  a.dtype = static_cast<std::int32_t>(call.out[0].scalar_type());
  a.peer = call.peer;
  a.length = length_of(call);
  a.buffer = place_ ? place_->buffer->id() : -1;
  a.offset = place_ ? static_cast<std::int64_t>(place_->offset_bytes) : 0;
  a.line = call.site.line;
  const auto length = std::strlen(call.site.file);
  const auto shown = std::min(length, sizeof a.file - 1);
  std::memcpy(a.file, call.site.file + (length - shown), shown);
  a.file[shown] = '\0';
  count(&Slot::announced, number_);
}

void Collective::count(std::atomic<std::uint64_t> Slot::*counter, std::uint64_t value) {
  (board.own().*counter).store(value, std::memory_order_release);
  board.bell().ring();
}

bool Collective::is_in_place() const {
  if (!place_) return false;
  const auto& own = board.announcement(board.rank(), number_);
  for (int r = 0; r < board.size(); ++r) {
    const auto& its = board.announcement(r, number_);
    if (its.buffer != own.buffer || its.offset != own.offset) return false;
  }
  return true;
}

std::string Collective::difference() const {
  const auto& first = board.announcement(0, number_);
  std::vector<Asked> asked;
  bool differ = false;
  for (int r = 0; r < board.size(); ++r) {
    differ |= !alike(first, board.announcement(r, number_));
  }
  if (!differ) return "";
  for (int r = 0; r < board.size(); ++r) {
    asked.push_back(asked_by(board.announcement(r, number_)));
  }
  return first_difference(asked);
}

void Collective::decide() {
  const auto problem = difference();
  if (!problem.empty()) throw Error(Fault::config, problem);
  in_place_ = is_in_place();
  decided_ = true;
}

bool Collective::advance() {
  if (!decided_ && board.all_at(&Slot::announced, number_)) decide();
  if (in_place_) return advance_blocks();
  // A tensor in a buffer may be in one everywhere: then there is nothing to put.
  const bool undecided = place_.has_value() || rounds_->needs_announcements();
  if (!decided_ && undecided) return false;
  return advance_rounds();
}

bool Collective::advance_rounds() {
  const auto rounds = rounds_->count();
  const auto round = [&](std::uint64_t index) {
    return Round{board, index, first_round_ + index};
  };
  const bool combines = rounds_->combines();
  const auto all_have = combines ? &Slot::combined : &Slot::put;
  if (decided_ && taken_ < rounds && board.all_at(all_have, first_round_ + taken_)) {
    rounds_->take(round(taken_));
    count(&Slot::taken, first_round_ + taken_);
    if (++taken_ == rounds) finish();
    return true;
  }
  if (combines && decided_ && combined_ < rounds &&
      board.all_at(&Slot::put, first_round_ + combined_)) {
    rounds_->combine(round(combined_));
    count(&Slot::combined, first_round_ + combined_++);
    return true;
  }
  const auto next = first_round_ + put_;
  if (put_ == rounds || (next > kDepth && !board.all_at(&Slot::taken, next - kDepth))) {
    return false;
  }
  rounds_->put(round(put_++));
  count(&Slot::put, next);
  return true;
}

std::uint64_t Collective::whole_bytes() const {
  return (call.kind == Kind::reduce_scatter ? call.in : call.out[0]).nbytes();
}

std::uint32_t Collective::num_blocks() const {
  return static_cast<std::uint32_t>((whole_bytes() + kBlockBytes - 1) / kBlockBytes);
}

std::vector<char*> Collective::places_at(std::uint64_t offset) const {
  std::vector<char*> places;
  for (int r = 0; r < board.size(); ++r) {
    places.push_back(place_->buffer->data(r) + place_->offset_bytes + offset);
  }
  return places;
}

// Any rank that has time does a block, whichever slice it belongs to.
void Collective::work_on_block(std::uint64_t begin, std::uint64_t num_bytes) const {
  if (call.kind == Kind::all_reduce) {
    const auto outs = places_at(begin);
    const std::vector<const char*> parts(outs.begin(), outs.end());
    reduce({call.out[0].scalar_type(), call.op},
           {parts, outs, num_bytes / call.out[0].element_size()});
    return;
  }
  const auto slice = whole_bytes() / static_cast<std::uint64_t>(board.size());
  const auto end = begin + num_bytes;
  while (begin < end) {
    const auto owner = begin / slice;
    const auto until = std::min(end, (owner + 1) * slice);
    work_on_slice(static_cast<int>(owner), begin, until - begin);
    begin = until;
  }
}

void Collective::work_on_slice(int owner, std::uint64_t begin,
                               std::uint64_t num_bytes) const {
  const auto places = places_at(begin);
  auto* own = places[static_cast<std::size_t>(owner)];
  if (call.kind == Kind::reduce_scatter) {
    const std::vector<const char*> parts(places.begin(), places.end());
    reduce({call.in.scalar_type(), call.op}, {parts, std::span<char* const>(&own, 1),
                                              num_bytes / call.in.element_size()});
    return;
  }
  for (auto* place : places) {
    if (place != own) std::memcpy(place, own, num_bytes);
  }
}

bool Collective::advance_blocks() {
  auto& blocks = board.blocks(number_);
  const auto number = static_cast<std::uint32_t>(number_);
  if (blocks.done.count(number) == num_blocks()) {
    for (const auto counter : {&Slot::put, &Slot::combined, &Slot::taken}) {
      (board.own().*counter).store(first_round_, std::memory_order_release);
    }
    board.bell().ring();
    finish();
    return true;
  }
  const auto block = blocks.claimed.add(number, num_blocks());
  if (!block) return false;
  const auto begin = *block * kBlockBytes;
  work_on_block(begin, std::min(kBlockBytes, whole_bytes() - begin));
  blocks.done.add(number, num_blocks());
  if (blocks.done.count(number) == num_blocks()) board.bell().ring();
  return true;
}

std::uint64_t Collective::next_round() const noexcept {
  return first_round_ + (in_place_ ? 1 : rounds_->count());
}

bool Collective::is_given() const noexcept {
  if (done.load(std::memory_order_acquire)) return true;
  return put_ == 1 && !rounds_->combines() && rounds_->count() == 1;
}

std::vector<int> Collective::missing() const {
  std::vector<int> ranks;
  if (in_place_) {
    for (int r = 0; r < board.size(); ++r) ranks.push_back(r);
  } else if (board.own().announced.load() < number_) {
    ranks = board.behind(&Slot::finished, number_ - kMostAnnounced);
  } else if (!decided_) {
    ranks = board.behind(&Slot::announced, number_);
  } else {
    const bool combines = rounds_->combines();
    const auto next = std::min(combines ? combined_ : taken_, rounds_->count() - 1);
    ranks = board.behind(&Slot::put, first_round_ + next);
    if (ranks.empty() && combines) {
      ranks = board.behind(&Slot::combined, first_round_ + taken_);
    }
    if (ranks.empty() && first_round_ + put_ > kDepth) {
      ranks = board.behind(&Slot::taken, first_round_ + put_ - kDepth);
    }
  }
  ranks.erase(std::remove(ranks.begin(), ranks.end(), board.rank()), ranks.end());
  return ranks;
}

}  // namespace lockstep::comm::detail
