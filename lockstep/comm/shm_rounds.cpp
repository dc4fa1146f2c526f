#include "lockstep/comm/detail/shm_rounds.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/comm/detail/reduce.h"

namespace lockstep::comm::detail {
namespace {

char* bytes_of(const torch::Tensor& t) {
  return static_cast<char*>(t.data_ptr());
}

std::uint64_t rounds_for(std::uint64_t length, std::uint64_t per_round) {
  return std::max<std::uint64_t>(1, (length + per_round - 1) / per_round);
}

void copy(char* to, const char* from, std::uint64_t num_bytes) {
  if (num_bytes > 0 && to != from) std::memcpy(to, from, num_bytes);
}

struct Range {
  std::uint64_t begin, end;

  std::uint64_t length() const { return end - begin; }
};

// The sizes that a reduction needs. Lengths are in elements.
struct CallShape {
  CallShape(const Board& board, const Call& call)
      : reduction{call.out[0].scalar_type(), call.op},
        item(call.out[0].element_size()),
        own(board.rank()),
        size(board.size()),
        per_chunk(board.chunk_bytes() / item) {}

  Reduction reduction;
  std::uint64_t item;  // bytes of an element
  int own, size;
  std::uint64_t per_chunk;
};

// all_reduce: each rank sums its slice of a chunk.
class Sum : public Rounds {
 public:
  Sum(const Board& board, const Call& call)
      : shape_(board, call),
        data_(bytes_of(call.out[0])),
        length_(static_cast<std::uint64_t>(call.out[0].numel())) {}

  std::uint64_t count() const override { return rounds_for(length_, shape_.per_chunk); }
  bool combines() const override { return true; }

  void put(const Round& round) override {
    each_other(round, [&](int, char* own, std::uint64_t at, std::uint64_t num_bytes) {
      copy(round.own() + at, own, num_bytes);
    });
  }

  void combine(const Round& round) override {
    const auto slice = slice_of(round, shape_.own);
    const auto at = slice.begin * shape_.item;
    auto* own = place(round) + at;
    std::vector<const char*> parts;
    for (int r = 0; r < shape_.size; ++r) {
      parts.push_back(r == shape_.own ? own : round.chunk(r) + at);
    }
    const std::array<char*, 2> outs = {own, round.own() + at};
    reduce(shape_.reduction, {parts, outs, slice.length()});
  }

  void take(const Round& round) override {
    each_other(round, [&](int r, char* own, std::uint64_t at, std::uint64_t num_bytes) {
      copy(own, round.chunk(r) + at, num_bytes);
    });
  }

 private:
  char* place(const Round& round) const {
    return data_ + round.index * shape_.per_chunk * shape_.item;
  }

  // Returns a rank's slice of the round, in whole cache lines, so that ranks do not
  // write into the same one.
  Range slice_of(const Round& round, int rank) const {
    constexpr std::uint64_t kTogether = 64;
    const auto length =
        std::min(shape_.per_chunk, length_ - round.index * shape_.per_chunk);
    const auto size = static_cast<std::uint64_t>(shape_.size);
    const auto even = (length + size - 1) / size;
    const auto share = (even + kTogether - 1) / kTogether * kTogether;
    const auto begin = static_cast<std::uint64_t>(rank) * share;
    return {std::min(length, begin), std::min(length, begin + share)};
  }

  template <typename Body>
  void each_other(const Round& round, const Body& body) const {
    for (int r = 0; r < shape_.size; ++r) {
      if (r == shape_.own) continue;
      const auto slice = slice_of(round, r);
      const auto at = slice.begin * shape_.item;
      body(r, place(round) + at, at, slice.length() * shape_.item);
    }
  }

  CallShape shape_;
  char* data_;
  std::uint64_t length_;
};

// all_reduce of a tensor so small that waiting once is worth more than sharing the
// work: every rank sums all of it.
class SmallSum : public Rounds {
 public:
  SmallSum(const Board& board, const Call& call)
      : shape_(board, call),
        data_(bytes_of(call.out[0])),
        length_(static_cast<std::uint64_t>(call.out[0].numel())) {}

  std::uint64_t count() const override { return 1; }

  void put(const Round& round) override {
    copy(round.own(), data_, length_ * shape_.item);
  }

  void take(const Round& round) override {
    std::vector<const char*> parts;
    for (int r = 0; r < shape_.size; ++r) parts.push_back(round.chunk(r));
    reduce(shape_.reduction, {parts, std::span<char* const>(&data_, 1), length_});
  }

 private:
  CallShape shape_;
  char* data_;
  std::uint64_t length_;
};

// reduce_scatter: a chunk has a piece for every rank.
class Scatter : public Rounds {
 public:
  Scatter(const Board& board, const Call& call)
      : shape_(board, call),
        in_(bytes_of(call.in)),
        out_(bytes_of(call.out[0])),
        length_(static_cast<std::uint64_t>(call.out[0].numel())),
        piece_(shape_.per_chunk / static_cast<std::uint64_t>(shape_.size)) {}

  std::uint64_t count() const override { return rounds_for(length_, piece_); }

  void put(const Round& round) override {
    for (int r = 0; r < shape_.size; ++r) {
      if (r == shape_.own) continue;
      copy(piece_of(round.own(), r), source(round, r), elements(round) * shape_.item);
    }
  }

  void take(const Round& round) override {
    std::vector<const char*> parts;
    for (int r = 0; r < shape_.size; ++r) {
      parts.push_back(r == shape_.own ? source(round, r)
                                      : piece_of(round.chunk(r), shape_.own));
    }
    auto* out = out_ + round.index * piece_ * shape_.item;
    reduce(shape_.reduction, {parts, std::span<char* const>(&out, 1), elements(round)});
  }

 private:
  std::uint64_t elements(const Round& round) const {
    return std::min(piece_, length_ - round.index * piece_);
  }

  char* piece_of(char* chunk, int rank) const {
    return chunk + static_cast<std::uint64_t>(rank) * piece_ * shape_.item;
  }

  const char* source(const Round& round, int rank) const {
    const auto index =
        static_cast<std::uint64_t>(rank) * length_ + round.index * piece_;
    return in_ + index * shape_.item;
  }

  CallShape shape_;
  const char* in_;
  char* out_;
  std::uint64_t length_;  // of out
  std::uint64_t piece_;
};

// all_gather and broadcast: all others take the bytes that a rank gives.
class Gather : public Rounds {
 public:
  Gather(const Board& board, const Call& call) : own_(board.rank()) {
    per_chunk_ = board.chunk_bytes();
    for (int r = 0; r < board.size(); ++r) outs_.push_back(out_of(call, r));
    in_ = call.kind == Kind::broadcast ? outs_[index(own_)].data : bytes_of(call.in);
  }

  std::uint64_t count() const override {
    std::uint64_t most = 0;
    for (const auto& out : outs_) most = std::max(most, out.num_bytes);
    return rounds_for(most, per_chunk_);
  }

  void put(const Round& round) override {
    copy(round.own(), in_ + at(round), length(round, own_));
  }

  void take(const Round& round) override {
    for (int r = 0; r < static_cast<int>(outs_.size()); ++r) {
      const auto* from = r == own_ ? in_ + at(round) : round.chunk(r);
      copy(outs_[index(r)].data + at(round), from, length(round, r));
    }
  }

 private:
  struct Out {
    char* data;
    std::uint64_t num_bytes;
  };

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  static Out out_of(const Call& call, int rank) {
    if (call.kind == Kind::all_gather_uneven) {
      const auto& out = call.out[index(rank)];
      return {bytes_of(out), out.nbytes()};
    }
    auto* data = bytes_of(call.out[0]);
    if (call.kind == Kind::broadcast) {
      return {data, rank == call.peer ? call.out[0].nbytes() : 0};
    }
    return {data + index(rank) * call.in.nbytes(), call.in.nbytes()};
  }

  std::uint64_t at(const Round& round) const { return round.index * per_chunk_; }

  std::uint64_t length(const Round& round, int rank) const {
    const auto all = outs_[index(rank)].num_bytes;
    return all <= at(round) ? 0 : std::min(per_chunk_, all - at(round));
  }

  int own_;
  std::uint64_t per_chunk_ = 0;
  const char* in_ = nullptr;
  std::vector<Out> outs_;
};

// all_to_all: only the sender knows where its parts begin, so a table of offsets comes
// before the bytes.
class ExchangeRounds : public Rounds {
 public:
  ExchangeRounds(const Board& board, const Call& call, std::uint64_t collective)
      : board_(board),
        collective_(collective),
        size_(static_cast<std::size_t>(board.size())),
        table_bytes_(((size_ + 1) * sizeof(std::uint64_t) + 63) / 64 * 64),
        in_(bytes_of(call.in)),
        out_(bytes_of(call.out[0])),
        in_parts_(begins(call.in, call.in_splits)),
        out_parts_(begins(call.out[0], call.out_splits)),
        theirs_(size_) {}

  bool needs_announcements() const override { return true; }

  std::uint64_t count() const override {
    std::int64_t most = 0;
    for (int r = 0; r < board_.size(); ++r) {
      most = std::max(most, board_.announcement(r, collective_).length);
    }
    return rounds_for(table_bytes_ + static_cast<std::uint64_t>(most),
                      board_.chunk_bytes());
  }

  void put(const Round& round) override {
    if (round.index == 0) {
      std::memcpy(round.own(), in_parts_.data(),
                  in_parts_.size() * sizeof in_parts_[0]);
    }
    const auto range = window(round);
    if (range.begin >= in_parts_.back()) return;
    copy(payload(round, board_.rank()), in_ + range.begin,
         std::min(range.end, in_parts_.back()) - range.begin);
  }

  void take(const Round& round) override {
    if (round.index == 0) read_tables(round);
    const auto range = window(round);
    for (std::size_t r = 0; r < size_; ++r) {
      const auto begin = std::max(range.begin, theirs_[r].begin);
      const auto end = std::min(range.end, theirs_[r].end);
      if (begin >= end) continue;
      copy(out_ + out_parts_[r] + (begin - theirs_[r].begin),
           payload(round, static_cast<int>(r)) + (begin - range.begin), end - begin);
    }
  }

 private:
  // Returns the offsets of the parts in bytes, and the end of the last.
  std::vector<std::uint64_t> begins(const torch::Tensor& t,
                                    const std::vector<std::int64_t>& splits) const {
    const auto rows = static_cast<std::uint64_t>(t.size(0));
    const auto row_bytes = rows == 0 ? 0 : t.nbytes() / rows;
    std::vector<std::uint64_t> all{0};
    for (std::size_t r = 0; r < size_; ++r) {
      const auto length =
          splits.empty() ? rows / size_ : static_cast<std::uint64_t>(splits[r]);
      all.push_back(all.back() + length * row_bytes);
    }
    return all;
  }

  // Returns the bytes of `in` that are in this round's chunk, if there are so many.
  Range window(const Round& round) const {
    const auto begin = round.index * board_.chunk_bytes();
    return {round.index == 0 ? 0 : begin - table_bytes_,
            begin + board_.chunk_bytes() - table_bytes_};
  }

  char* payload(const Round& round, int rank) const {
    return round.chunk(rank) + (round.index == 0 ? table_bytes_ : 0);
  }

  void read_tables(const Round& round) {
    const auto own = static_cast<std::size_t>(board_.rank());
    for (std::size_t r = 0; r < size_; ++r) {
      std::memcpy(&theirs_[r],
                  round.chunk(static_cast<int>(r)) + own * sizeof(std::uint64_t),
                  sizeof theirs_[r]);
      const auto wanted = out_parts_[r + 1] - out_parts_[r];
      if (theirs_[r].length() == wanted) continue;
      throw Error(Fault::config, "comm: all_to_all: rank ", r, " gives rank ", own, " ",
                  theirs_[r].length(), " bytes, which expects ", wanted);
    }
  }

  const Board& board_;
  std::uint64_t collective_;
  std::size_t size_;
  std::uint64_t table_bytes_;
  const char* in_;
  char* out_;
  std::vector<std::uint64_t> in_parts_, out_parts_;
  std::vector<Range> theirs_;  // the bytes for this rank, by sender
};

constexpr std::size_t kSmallBytes = 4096;

}  // namespace

std::unique_ptr<Rounds> make_rounds(const Board& board, const Call& call,
                                    std::uint64_t collective) {
  switch (call.kind) {
    case Kind::all_reduce:
      if (call.out[0].nbytes() <= kSmallBytes) {
        return std::make_unique<SmallSum>(board, call);
      }
      return std::make_unique<Sum>(board, call);
    case Kind::reduce_scatter:
      return std::make_unique<Scatter>(board, call);
    case Kind::all_to_all:
      return std::make_unique<ExchangeRounds>(board, call, collective);
    default:
      return std::make_unique<Gather>(board, call);
  }
}

}  // namespace lockstep::comm::detail
